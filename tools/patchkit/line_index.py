"""Where lines stand in a file, looked up for many hunks and worked out once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

Norm = Callable[[bytes], bytes]


class LineIndex:
    """The lines of one file. A file of 300,000 may have a hundred hunks to explain."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = tuple(lines)
        self._like: dict[Norm, LineIndex] = {}

    @cached_property
    def _where(self) -> dict[bytes, list[int]]:
        where: dict[bytes, list[int]] = {}
        for number, line in enumerate(self.lines):
            where.setdefault(line, []).append(number)
        return where

    def spots(self, line: bytes) -> Sequence[int]:
        """Every index of one line."""
        return self._where.get(line, ())

    def find(self, wanted: Sequence[bytes]) -> list[int]:
        """Every index at which ``wanted`` (not empty) stands."""
        wanted = tuple(wanted)
        rarest = min(range(len(wanted)), key=lambda at: len(self.spots(wanted[at])))
        starts = (spot - rarest for spot in self.spots(wanted[rarest]))
        return [
            start
            for start in starts
            if start >= 0 and self.lines[start : start + len(wanted)] == wanted
        ]

    def like(self, norm: Norm) -> LineIndex:
        """The index of the same lines after ``norm``."""
        if norm not in self._like:
            self._like[norm] = LineIndex([norm(line) for line in self.lines])
        return self._like[norm]
