"""How one hunk of a release's patch fits another source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.diff_model import Hunk
from patchkit.step import place
from patchkit.three_way import ThreeWay
from patchkit.virtual_tree import split_lines

FitKind = Literal["exact", "moved", "merged", "renamed", "upstream", "conflict", "gone"]
# From the one that needs nothing to the one that needs most.
FIT_KINDS: tuple[FitKind, ...] = (
    "exact",
    "moved",
    "merged",
    "renamed",
    "upstream",
    "conflict",
    "gone",
)
FIT_WORDS: dict[FitKind, str] = {
    "exact": "stands where it is declared",
    "moved": "stands at another line, its context unchanged",
    "merged": "the context changed, and git merges it",
    "renamed": "the file has another name",
    "upstream": "upstream has it already",
    "conflict": "the context changed, and git cannot merge it",
    "gone": "there is no such file, under no name",
}


@dataclass(frozen=True)
class Placed:
    """How a hunk fits one file: ``offset`` in lines for "moved"."""

    kind: FitKind
    offset: int = 0


def fit_hunk(merger: ThreeWay, hunk: Hunk, base: bytes, ours: bytes) -> Placed:
    """Judge a hunk of ``base`` (the file it was made for) on ``ours``.

    git's 3-way merge decides where the change belongs; "exact" and "moved" are those
    whose old lines stand there unchanged, all of them, as ``git apply`` wants it. A
    look-alike at the declared line is no exact fit.
    """
    begin = place(hunk)[0]
    lines = split_lines(ours)
    spots = find_lines(hunk.old_lines, lines) if hunk.old_lines else [begin]
    if base == ours:
        return Placed("exact")
    merged = merger.merge(base, ours, with_hunks(base, [hunk]))
    if not merged.clean:
        return Placed("conflict")
    if merged.data == ours:
        return Placed("upstream")
    for spot in spots:
        if _anchored(lines, spot, hunk) and _replaced(lines, spot, hunk) == merged.data:
            offset = spot - begin
            return Placed("moved", offset) if offset else Placed("exact")
    return Placed("merged")


def find_lines(wanted: Sequence[bytes], lines: Sequence[bytes]) -> list[int]:
    """Return every index at which ``wanted`` (not empty) stands in ``lines``."""
    wanted, lines = tuple(wanted), tuple(lines)
    found: list[int] = []
    start = 0
    while True:
        try:
            start = lines.index(wanted[0], start)
        except ValueError:
            return found
        if lines[start : start + len(wanted)] == wanted:
            found.append(start)
        start += 1


def _anchored(lines: Sequence[bytes], spot: int, hunk: Hunk) -> bool:
    """Whether a hunk that begins or ends its file does so here too, as git asks."""
    kinds = [line.kind for line in hunk.lines]
    if hunk.old_start <= 1 and spot:
        return False
    return kinds[-1] == " " or spot + len(hunk.old_lines) == len(lines)


def with_hunks(base: bytes, hunks: Sequence[Hunk]) -> bytes:
    """``base`` after some of the hunks made for it, in order."""
    lines = split_lines(base)
    out: list[bytes] = []
    done = 0
    for hunk in hunks:
        begin, end = place(hunk)
        out += [*lines[done:begin], *hunk.new_lines]
        done = end
    return b"".join([*out, *lines[done:]])


def _replaced(lines: Sequence[bytes], spot: int, hunk: Hunk) -> bytes:
    end = spot + len(hunk.old_lines)
    return b"".join([*lines[:spot], *hunk.new_lines, *lines[end:]])
