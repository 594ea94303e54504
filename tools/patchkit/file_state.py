"""One file as git sees it, and where such files are read from."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, Protocol, runtime_checkable

from patchkit.errors import EnvironmentProblem, Refused

REGULAR = 0o100644
EXECUTABLE = 0o100755

UnsafeReason = Literal["symlink", "not-regular", "parent-is-file", "escapes"]

_WORDS: dict[str, str] = {
    "symlink": "is a symbolic link, and none is followed",
    "not-regular": "is no regular file",
    "parent-is-file": "is a file where the diff needs a folder",
    "escapes": "leads out of the tree",
}


@dataclass(frozen=True)
class FileState:
    """The bytes of a file and its mode in git's terms, 0o100644 or 0o100755."""

    data: bytes
    mode: int = REGULAR


class UnsafePath(Refused):
    """A path that must not be read or written; ``component`` is the part to blame."""

    def __init__(self, path: str, component: str, reason: UnsafeReason) -> None:
        super().__init__(f"{path}: {component} {_WORDS[reason]}")
        self.path = path
        self.component = component
        self.reason: UnsafeReason = reason


class Source(Protocol):
    """Where the bytes before come from: a tree, an sdist, an image, memory."""

    @property
    def label(self) -> str:
        """What to call this source in a message."""

    def read(self, path: str) -> FileState | None:
        """Return the file at ``path``, or None where there is none.

        Raises UnsafePath where a component is a symbolic link, or where the path
        names something that is no regular file.
        """


@runtime_checkable
class Finder(Protocol):
    """A source that can also say where files of one name lie."""

    def find_name(self, name: str, near: str = "") -> Sequence[str]:
        """Return some paths whose last component is ``name``, those near first."""


class MemorySource:
    """Files held in memory, for plans over archives and for tests."""

    def __init__(self, files: Mapping[str, FileState], label: str = "") -> None:
        self._files = dict(files)
        self._folders = {
            str(parent)
            for path in self._files
            for parent in PurePosixPath(path).parents
            if str(parent) != "."
        }
        self.label = label

    def read(self, path: str) -> FileState | None:
        """Return the file at ``path``; see ``Source.read``."""
        checked_parts(path)
        if path in self._folders:
            raise UnsafePath(path, path, "not-regular")
        for parent in PurePosixPath(path).parents:
            if str(parent) in self._files:
                raise UnsafePath(path, str(parent), "parent-is-file")
        return self._files.get(path)

    def find_name(self, name: str, near: str = "") -> Sequence[str]:
        """Return the paths whose last component is ``name``."""
        found = [path for path in self._files if path.rpartition("/")[2] == name]
        return sorted(found, key=lambda path: (not path.startswith(near), path))


def checked_parts(path: str) -> list[str]:
    """Split a relative path.

    Raises UnsafePath if it could lead out of its root, EnvironmentProblem where this
    Python would write its bytes otherwise than git does.
    """
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UnsafePath(path, path, "escapes")
    if not path.isascii() and sys.getfilesystemencoding() != "utf-8":
        raise EnvironmentProblem(
            f"{path}: file names of this locale are not UTF-8, and git's are bytes",
            hint="type the same command again with PYTHONUTF8=1 before it",
        )
    return parts
