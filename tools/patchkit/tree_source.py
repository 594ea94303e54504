"""Files of a folder on disk, read without following any symbolic link below it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from patchkit.errors import EnvironmentProblem, UsageError
from patchkit.file_state import (
    EXECUTABLE,
    REGULAR,
    FileState,
    UnsafePath,
    checked_parts,
)

# O_PATH (Linux) opens a folder that may be passed through but not listed.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
# O_NONBLOCK: a named pipe must not hang the read; fstat refuses it afterwards.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDERS_SEARCHED = 20_000


def check_root(root: Path) -> None:
    """Raise UsageError unless ``root`` is a folder, EnvironmentProblem out of reach."""
    try:
        mode = root.stat().st_mode
    except PermissionError as error:
        raise EnvironmentProblem(
            f"{root}: {error.strerror}", hint="run as the user who owns the tree"
        ) from None
    except (OSError, ValueError):
        mode = 0
    if not stat.S_ISDIR(mode):
        raise UsageError(
            f"{root}: no such folder" if not mode else f"{root} is no folder",
            hint="give the folder that a/ and b/ of the diff stand for",
        )


class TreeSource:
    """The files below ``root``; ``root`` itself may be reached through a link.

    Each component is opened relative to its parent, so a folder that is swapped for
    a link while we read cannot lead elsewhere.
    """

    def __init__(self, root: Path) -> None:
        """Raise UsageError unless ``root`` is a folder."""
        check_root(root)
        self.root = root
        self.label = str(root)

    def read(self, path: str) -> FileState | None:
        """Return the file at ``path``; see ``Source.read``.

        Raises EnvironmentProblem where the file cannot be read.
        """
        parts = checked_parts(path)
        try:
            folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _unreadable(self.root, error) from error
        try:
            for depth, part in enumerate(parts[:-1], start=1):
                inner = self._descend(folder, part, parts, depth)
                if inner is None:
                    return None
                os.close(folder)
                folder = inner
            return self._read_file(folder, parts)
        finally:
            os.close(folder)

    def _descend(
        self, folder: int, part: str, parts: list[str], depth: int
    ) -> int | None:
        try:
            return os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._blame(folder, part, parts, depth)
            raise _unreadable(self.root / "/".join(parts), error) from error

    def _read_file(self, folder: int, parts: list[str]) -> FileState | None:
        try:
            handle = os.open(parts[-1], _FILE, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._blame(folder, parts[-1], parts, len(parts))
            raise _unreadable(self.root / "/".join(parts), error) from error
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                path = "/".join(parts)
                raise UnsafePath(path, path, "not-regular")
            with os.fdopen(handle, "rb", closefd=False) as file:
                data = file.read()
        except OSError as error:
            raise _unreadable(self.root / "/".join(parts), error) from error
        finally:
            os.close(handle)
        # Git looks at the owner's bit alone.
        return FileState(data, EXECUTABLE if mode & stat.S_IXUSR else REGULAR)

    @staticmethod
    def _blame(folder: int, part: str, parts: list[str], depth: int) -> None:
        """Raise UnsafePath if what lies at ``part`` is of a kind we refuse."""
        try:
            mode = os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode
        except OSError:
            return
        path, component = "/".join(parts), "/".join(parts[:depth])
        if stat.S_ISLNK(mode):
            raise UnsafePath(path, component, "symlink")
        if depth < len(parts) and not stat.S_ISDIR(mode):
            raise UnsafePath(path, component, "parent-is-file")
        if depth == len(parts) and not stat.S_ISREG(mode):
            raise UnsafePath(path, component, "not-regular")

    def find_name(self, name: str, near: str = "") -> Sequence[str]:
        """Return some paths whose last component is ``name``, those near first.

        Looks through the first folder of ``near``, then the rest, and stops after
        20,000 folders: this only makes a message more helpful.
        """
        found: list[str] = []
        first = near.partition("/")[0]
        starts = [self.root / first] if first else []
        seen = 0
        for start in [*starts, self.root]:
            for folder, folders, files in os.walk(start):
                seen += 1
                if start == self.root and folder == str(self.root) and first in folders:
                    folders.remove(first)
                if name in files:
                    path = Path(folder, name).relative_to(self.root)
                    found.append(path.as_posix())
                if len(found) >= 5 or seen > _FOLDERS_SEARCHED:
                    return found
        return found


def _unreadable(path: Path, error: OSError) -> EnvironmentProblem:
    reason = os.strerror(error.errno or errno.EIO)
    return EnvironmentProblem(
        f"{path}: cannot be read: {reason}",
        hint="run as the user who owns the tree, or give another --root",
    )
