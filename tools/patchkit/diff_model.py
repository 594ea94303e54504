"""A parsed diff. Bytes throughout: a diff has no encoding, its paths do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ChangeKind = Literal["modify", "create", "delete", "rename", "copy", "mode"]
LineKind = Literal[" ", "+", "-"]


@dataclass(frozen=True)
class HunkLine:
    """One body line; ``text`` lacks the marker column and the final ``\\n``.

    ``line`` is its line in the patch file, from 1. ``newline`` is False where
    ``\\ No newline at end of file`` follows.
    """

    kind: LineKind
    text: bytes
    line: int
    newline: bool = True

    @property
    def data(self) -> bytes:
        """The bytes this line stands for in the file."""
        return self.text + (b"\n" if self.newline else b"")


@dataclass(frozen=True)
class Hunk:
    """One hunk. Starts and counts are those declared in its ``@@`` header."""

    line: int
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: bytes
    lines: tuple[HunkLine, ...]

    @property
    def old_lines(self) -> tuple[bytes, ...]:
        """Context and removed lines, in order, with their line ends."""
        return tuple(entry.data for entry in self.lines if entry.kind != "+")

    @property
    def new_lines(self) -> tuple[bytes, ...]:
        """Context and added lines, in order, with their line ends."""
        return tuple(entry.data for entry in self.lines if entry.kind != "-")


@dataclass(frozen=True)
class FileChange:
    """One file section. Paths are relative, ``/``-separated, without ``a/``, ``b/``.

    ``old_path`` is None for a created file, ``new_path`` None for a deleted one.
    Modes are git's (0o100644, 0o100755), None where the section states none. Blob
    ids are those of the ``index`` line, possibly abbreviated, None without one.
    """

    line: int
    kind: ChangeKind
    old_path: str | None
    new_path: str | None
    old_mode: int | None = None
    new_mode: int | None = None
    old_blob: str | None = None
    new_blob: str | None = None
    similarity: int | None = None
    hunks: tuple[Hunk, ...] = ()

    @property
    def path(self) -> str:
        """The path a person would call this change by."""
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


@dataclass(frozen=True)
class Patch:
    """One patch file: ``name`` as the user gave it, its raw bytes, its sections."""

    name: str
    data: bytes
    header: bytes
    files: tuple[FileChange, ...]
