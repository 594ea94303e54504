"""Which release holds the text that serves a release: a table for the README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.releases import Releases
from patchkit.series_draft import read_draft


def text_homes(releases: Releases) -> dict[str, dict[str, str]]:
    """By release, then by patch stem: the name of the release that holds the text."""
    by_folder = {each.path.resolve(): each.name for each in releases.release.values()}
    homes: dict[str, dict[str, str]] = {}
    for name in sorted(releases.release, key=_numbers):
        release = releases.release[name]
        if not release.path.is_dir():
            continue
        draft = read_draft(release)
        homes[name] = {
            patch.stem: by_folder[draft.path_of(number).resolve().parent]
            for number, patch in enumerate(draft.patches)
        }
    return homes


def count_texts(releases: Releases) -> int:
    """How many distinct patch files the series of all releases come from."""
    texts: set[Path] = set()
    for release in releases.release.values():
        if release.path.is_dir():
            draft = read_draft(release)
            texts |= {draft.path_of(n).resolve() for n in range(len(draft.patches))}
    return len(texts)


def text_table(releases: Releases) -> str:
    """A Markdown table: releases down, patches across, in the cells where it lies."""
    homes = text_homes(releases)
    stems = list(dict.fromkeys(stem for row in homes.values() for stem in row))
    rows = [["release", *stems], ["---"] * (len(stems) + 1)]
    for name, row in homes.items():
        rows.append([name, *(_cell(name, row.get(stem)) for stem in stems)])
    used = sum(len(row) for row in homes.values())
    last = f"{len(homes)} releases, {used} patches, {count_texts(releases)} texts."
    return "\n".join([*map(_line, rows), "", last])


def _cell(release: str, home: str | None) -> str:
    if home is None:
        return "–"
    return "own" if home == release else f"of {home}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("."))
