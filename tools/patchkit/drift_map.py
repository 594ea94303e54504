"""A picture of drift: releases across, patches down, coloured by how each fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from patchkit.hunk_fit import FIT_KINDS, FIT_WORDS, FitKind
from patchkit.patch_names import stem_of
from patchkit.series_drift import PatchFit, SeriesDrift

# Okabe and Ito's palette, which colour-blind people can tell apart, lightened; the
# words in the cells say the same.
COLOURS: dict[FitKind, str] = {
    "exact": "#7fcdb0",
    "moved": "#a6d8f0",
    "merged": "#f4e58a",
    "renamed": "#d9c2e0",
    "upstream": "#c8c8c8",
    "conflict": "#f0a277",
    "gone": "#e06c6c",
}
CELL_WIDTH, CELL_HEIGHT = 84, 40
_HEAD, _PAD, _LEGEND_ROW = 74, 16, 22
_CHARACTER = 7.3  # px, of the 13 px sans-serif used for names
_Box = tuple[float, float, float, float]  # left, top, width, height, in px
_FONT = "font-family:Helvetica,Arial,'DejaVu Sans',sans-serif"


@dataclass(frozen=True)
class Column:
    """One release of the map; ``drift`` is None where there was nothing to compare."""

    release: str
    drift: SeriesDrift


def drift_svg(title: str, columns: Sequence[Column]) -> str:
    """The map as the text of an SVG file. Every column has the same patches."""
    patches = columns[0].drift.patches if columns else ()
    longest = max((len(stem_of(patch.name)) for patch in patches), default=0)
    left = round(_PAD * 2 + max(longest, 12) * _CHARACTER)
    width = max(left + len(columns) * CELL_WIDTH + _PAD, 560)
    bottom = _HEAD + len(patches) * CELL_HEIGHT
    height = bottom + _PAD * 2 + (len(FIT_KINDS) + 2) * _LEGEND_ROW
    svg = ET.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        width=str(width),
        height=str(height),
        viewBox=f"0 0 {width} {height}",
        style=_FONT,
    )
    ET.SubElement(svg, "title").text = title
    _rect(svg, (0, 0, width, height), "#ffffff")
    _text(svg, _PAD, 28, title, size=16, weight="bold")
    for x, column in enumerate(columns):
        centre = left + x * CELL_WIDTH + CELL_WIDTH / 2
        _text(svg, centre, _HEAD - 12, column.release, anchor="middle", weight="bold")
    for y, patch in enumerate(patches):
        top = _HEAD + y * CELL_HEIGHT
        name = stem_of(patch.name)
        _text(svg, left - 10, top + 25, name, anchor="end")
        for x, column in enumerate(columns):
            _cell(svg, left + x * CELL_WIDTH, top, column, column.drift.patches[y])
    _legend(svg, left, bottom + _PAD * 1.5)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _cell(
    svg: ET.Element, left: float, top: float, column: Column, fit: PatchFit
) -> None:
    group = ET.SubElement(svg, "g")
    counts = {kind: sum(hunk.kind == kind for hunk in fit.hunks) for kind in FIT_KINDS}
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    hover = f"{stem_of(fit.name)} on {column.release}: {told}"
    ET.SubElement(group, "title").text = hover
    box = (left + 1, top + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2)
    _rect(group, box, COLOURS[fit.kind])
    centre = left + CELL_WIDTH / 2
    word = "as it is" if fit.as_it_is else fit.kind
    _text(group, centre, top + 18, word, anchor="middle", size=12)
    count = counts[fit.kind]
    share = f"{count} of {len(fit.hunks)}" if fit.hunks else ""
    _text(group, centre, top + 32, share, anchor="middle", size=10)


def _legend(svg: ET.Element, left: float, top: float) -> None:
    for number, kind in enumerate(FIT_KINDS):
        y = top + number * _LEGEND_ROW
        _rect(svg, (left, y, 16, 16), COLOURS[kind])
        _text(svg, left + 26, y + 13, f"{kind}: {FIT_WORDS[kind]}", size=12)
    notes = (
        "n of m: so many of the patch's hunks; a cell has the colour of its worst one",
        "as it is: the very text of the patch serves, its index lines too",
    )
    for number, note in enumerate(notes, len(FIT_KINDS)):
        _text(svg, left, top + number * _LEGEND_ROW + 13, note, size=12)


def _rect(parent: ET.Element, box: _Box, fill: str) -> None:
    sizes = dict(zip(("x", "y", "width", "height"), box, strict=True))
    attributes = {key: f"{value:g}" for key, value in sizes.items()}
    ET.SubElement(parent, "rect", {**attributes, "fill": fill})


def _text(
    parent: ET.Element,
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    anchor: str = "start",
    weight: str = "normal",
) -> None:
    element = ET.SubElement(
        parent,
        "text",
        {
            "x": f"{x:g}",
            "y": f"{y:g}",
            "font-size": str(size),
            "text-anchor": anchor,
            "font-weight": weight,
            "fill": "#1a1a1a",
        },
    )
    element.text = text
