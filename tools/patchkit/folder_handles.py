"""Folders below a root as open handles: no swapped link can redirect a write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@contextlib.contextmanager
def root_handle(root: Path) -> Iterator[int]:
    """An open handle of ``root``, which itself may be reached through a link."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def parent_handle(root: int, path: str) -> Iterator[tuple[int, str]]:
    """The handle of ``path``'s folder, and its last component.

    Raises OSError where a component is missing, no folder, or a symbolic link.
    """
    *folders, name = path.split("/")
    handle = os.dup(root)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle, name
    finally:
        os.close(handle)


def missing_folders(root: int, path: str) -> list[str]:
    """The folders above ``path`` that do not exist yet, outermost first."""
    parts = path.split("/")[:-1]
    for depth in range(len(parts)):
        folder = "/".join(parts[: depth + 1])
        with parent_handle(root, folder) as (handle, name):
            try:
                os.stat(name, dir_fd=handle, follow_symlinks=False)
            except FileNotFoundError:
                return ["/".join(parts[: n + 1]) for n in range(depth, len(parts))]
    return []


def sync_folder(root: int, path: str) -> None:
    """Make the names in ``path``'s folder durable."""
    with parent_handle(root, path) as (handle, _):
        os.fsync(handle)


def remove_empty_folders(root: int, path: str) -> None:
    """Remove the folders above ``path`` that hold nothing, innermost first.

    A folder that cannot be removed stays: it is no part of what was promised.
    """
    parts = path.split("/")[:-1]
    with contextlib.suppress(OSError):
        for depth in range(len(parts), 0, -1):
            with parent_handle(root, "/".join(parts[:depth])) as (handle, name):
                os.rmdir(name, dir_fd=handle)
