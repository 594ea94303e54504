"""The text of a ``series`` file: its entries in order, and the comments around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import UsageError

SERIES_FILES = {"capture": ("series",), "ascend": ("series", "series-ascend")}


def need_flavour(flavour: str) -> None:
    """Raise UsageError for a flavour that no release can have."""
    if flavour not in SERIES_FILES:
        known = ", ".join(SERIES_FILES)
        raise UsageError(f"no flavour {flavour!r}; there are: {known}")


@dataclass(frozen=True)
class SeriesLine:
    """One patch of a series file.

    ``entry`` is its text, such as ``0001-x.patch`` or ``../v0.25/0001-x.patch``;
    ``above`` holds the comment and blank lines before it, ``comment`` what follows it
    on its own line, ``#`` included.
    """

    entry: str
    above: tuple[str, ...] = ()
    comment: str = ""

    @property
    def shared(self) -> bool:
        """Whether the patch is another release's."""
        return "/" in self.entry


@dataclass(frozen=True)
class SeriesText:
    """A whole series file. ``head`` is the block of comments that opens it."""

    head: tuple[str, ...] = ()
    lines: tuple[SeriesLine, ...] = ()
    tail: tuple[str, ...] = ()

    def with_entries(self, entries: Sequence[tuple[str, str | None]]) -> SeriesText:
        """The text with other entries: each the new entry and the old one, or None.

        Comments go where their entry goes, and go with it when it is dropped.
        """
        old = {line.entry: line for line in self.lines}
        lines = []
        for entry, before in entries:
            known = old.get(before) if before is not None else None
            above = known.above if known else ()
            lines.append(SeriesLine(entry, above, known.comment if known else ""))
        return SeriesText(self.head, tuple(lines), self.tail)

    def __str__(self) -> str:
        rows = list(self.head)
        for line in self.lines:
            rows += line.above
            rows.append(line.entry + (f"  {line.comment}" if line.comment else ""))
        rows += self.tail
        return "".join(f"{row}\n" for row in rows)


def read_series_text(file: Path) -> SeriesText:
    """Read a series file; one that does not exist is empty."""
    if not file.exists():
        return SeriesText()
    return parse_series_text(file.read_text(encoding="utf-8"))


def parse_series_text(text: str) -> SeriesText:
    """Split a series file into its entries and what stands around them."""
    rows = text.split("\n")
    if rows and not rows[-1]:
        rows.pop()
    head: tuple[str, ...] | None = None
    lines: list[SeriesLine] = []
    above: list[str] = []
    for row in rows:
        entry, mark, comment = row.partition("#")
        if not entry.strip():
            above.append(row)
            continue
        if head is None:
            head, above = tuple(above), []
        kept = mark + comment if mark else ""
        lines.append(SeriesLine(entry.strip(), tuple(above), kept))
        above = []
    if head is None:
        return SeriesText(tuple(above))
    return SeriesText(head, tuple(lines), tuple(above))
