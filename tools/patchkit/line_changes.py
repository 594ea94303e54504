"""What changed between two texts, by lines, as git's diff tells it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.clean_git import CleanGit

_RANGES = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True)
class LineChange:
    """Lines ``[old_start, old_end)`` became ``[new_start, new_end)``; from 0."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int

    def touches(self, start: int, end: int) -> bool:
        """Whether lines ``[start, end)`` of the old text are no longer in one piece."""
        if self.old_start == self.old_end:
            return start < self.old_start < end
        return self.old_start < end and self.old_end > start


@dataclass(frozen=True)
class LineChanges:
    """Every change from one text to another, in order."""

    changes: tuple[LineChange, ...]

    def new_line(self, old: int, *, after: bool = False) -> int:
        """Where a line of the old text is in the new one.

        Of a line that changed: where its replacement begins or, with ``after``, ends.
        """
        shift = 0
        for change in self.changes:
            if change.old_end <= old and not (
                change.old_start == change.old_end == old and not after
            ):
                shift = change.new_end - change.old_end
            elif change.old_start <= old:
                inside = change.old_start < change.old_end
                if inside:
                    return change.new_end if after else change.new_start
        return old + shift

    def inverse(self) -> LineChanges:
        """The way back."""
        return LineChanges(
            tuple(
                LineChange(c.new_start, c.new_end, c.old_start, c.old_end)
                for c in self.changes
            )
        )

    def touching(self, start: int, end: int) -> tuple[LineChange, ...]:
        """The changes after which lines ``[start, end)`` are no longer in one piece."""
        return tuple(each for each in self.changes if each.touches(start, end))


def line_changes(git: CleanGit, before: str, after: str) -> LineChanges:
    """The changes between two blobs of a repository, given by id or name."""
    diff = git.output(
        "diff", "-U0", "--no-color", "--no-ext-diff", "--no-textconv", "--text",
        "--diff-algorithm=histogram", before, after,
    )  # fmt: skip
    return LineChanges(
        tuple(_change(match.groups()) for match in _RANGES.finditer(diff))
    )


def _change(ranges: Sequence[bytes | None]) -> LineChange:
    old, old_count, new, new_count = (
        int(text) if text is not None else 1 for text in ranges
    )
    # A range of no lines names the line before it.
    old_start = old - 1 if old_count else old
    new_start = new - 1 if new_count else new
    return LineChange(
        old_start, old_start + old_count, new_start, new_start + new_count
    )
