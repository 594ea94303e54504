"""Folders below a root as open handles: no swapped link can redirect a write."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def root_handle(root: Path) -> Iterator[int]:
    """An open handle of ``root``, which itself may be reached through a link."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def parent_handle(root: int, path: str) -> Iterator[tuple[int, str]]:
    """The handle of ``path``'s folder, and its last component.

    Raises OSError where a component is missing, no folder, or a symbolic link. Every
    OSError that leaves the block names ``path``: one of a call below a handle knows
    the last component alone.
    """
    *folders, name = path.split("/")
    try:
        handle = os.dup(root)
        try:
            for folder in folders:
                inner = os.open(folder, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle, name
        finally:
            os.close(handle)
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


def status(parent: int, name: str) -> os.stat_result | None:
    """What lies at ``name`` itself, be it a link; None where nothing does."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def names_in(folder: int) -> set[str]:
    """What an open folder holds."""
    return set(os.listdir(folder))


def missing_folders(root: int, path: str) -> list[str]:
    """The folders above ``path`` that do not exist yet, outermost first."""
    parts = path.split("/")[:-1]
    for depth in range(len(parts)):
        folder = "/".join(parts[: depth + 1])
        with parent_handle(root, folder) as (handle, name):
            if status(handle, name) is None:
                return ["/".join(parts[: n + 1]) for n in range(depth, len(parts))]
    return []


def emptied_folders(
    root: int, gone: Collection[str], written: Collection[str]
) -> list[str]:
    """The folders that hold nothing once ``gone`` are removed, innermost first."""
    found: list[str] = []
    leaving = set(gone)
    waiting = {path.rpartition("/")[0] for path in gone} - {""}
    while waiting:
        folder = max(waiting, key=lambda path: path.count("/"))
        waiting.remove(folder)
        with contextlib.suppress(FileNotFoundError):
            with parent_handle(root, f"{folder}/.") as (handle, _):
                names = names_in(handle)
            if any(f"{folder}/{name}" not in leaving for name in names):
                continue
            if any(path.startswith(f"{folder}/") for path in written):
                continue
            found.append(folder)
            leaving.add(folder)
            waiting |= {folder.rpartition("/")[0]} - {""}
    return found


def remove_folders(root: int, folders: Collection[str]) -> None:
    """Remove those of ``folders`` that are empty; one that is not stays.

    Raises OSError where an empty one cannot be removed.
    """
    for folder in folders:
        try:
            with parent_handle(root, folder) as (up, name):
                os.rmdir(name, dir_fd=up)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise


def sync_folder(root: int, path: str) -> None:
    """Make the names in ``path``'s folder durable."""
    with parent_handle(root, path) as (handle, _):
        sync(handle)


def sync(folder: int) -> None:
    """Make the names in an open folder durable, where its file system can."""
    try:
        os.fsync(folder)
    except OSError as error:
        # Some network and user-space file systems know no fsync of a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise


def new_folder_mode(parent: os.stat_result) -> int:
    """Permission bits of a folder made below ``parent``: the same, without sticky.

    Below a sticky folder (``/tmp``) only the owner may write, as it is there.
    """
    mode = stat.S_IMODE(parent.st_mode)
    return mode & (0o2755 if mode & stat.S_ISVTX else 0o2777)
