"""Cached bytecode that would keep running the old code after a file has changed.

A ``.pyc`` begins with a 16-byte header (PEP 552): magic, flags, then the source's
time and size, or its hash. Flags 1 is an unchecked hash: Python never looks at the
source again. A time stamp is harmless unless it happens to equal the new file's.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterable
from pathlib import Path

from patchkit.plan_types import PlannedFile

_HEADER = struct.Struct("<4sIII")
_HASH = 1
_CHECKED = 2


def stale_bytecode(files: Iterable[PlannedFile], root: Path) -> tuple[str, ...]:
    """Paths of ``.pyc`` files that must go when ``files`` change, sorted.

    Those of removed files go as well: a sourceless import would find them. So do
    those that an earlier module of a created file's name left. A revert finds the
    patched files' ones in the same way; none is brought back, Python makes them anew.
    """
    stale: list[str] = []
    now = int(time.time())
    for file in files:
        if not file.path.endswith(".py"):
            continue
        if file.before and file.after and file.before.data == file.after.data:
            continue  # its mode alone changes
        size = None if file.after is None else len(file.after.data)
        for path in _cached(root, file.path):
            header = _read_header(root / path)
            if header is None or _keeps_running(header, size, now):
                stale.append(path)
    return tuple(sorted(stale))


def is_unchecked(data: bytes) -> bool:
    """Whether a ``.pyc``'s bytes say that Python never looks at the source."""
    if len(data) < _HEADER.size:
        return False
    flags: int = _HEADER.unpack(data[: _HEADER.size])[1]
    return bool(flags & _HASH) and not flags & _CHECKED


def as_checked(data: bytes) -> bytes:
    """An unchecked ``.pyc`` whose source Python compares again, by its hash."""
    magic, flags, first, second = _HEADER.unpack(data[: _HEADER.size])
    return _HEADER.pack(magic, flags | _CHECKED, first, second) + data[_HEADER.size :]


def _cached(root: Path, path: str) -> list[str]:
    folder, _, name = path.rpartition("/")
    stem = name.removesuffix(".py")
    cache = root / folder / "__pycache__"
    found = []
    # A link is left alone: what it points to is not part of this tree.
    if cache.is_dir() and not cache.is_symlink():
        with contextlib.suppress(PermissionError), os.scandir(cache) as entries:
            found = [
                entry.path
                for entry in entries
                if entry.name.startswith(f"{stem}.")
                and entry.name.endswith(".pyc")
                and entry.is_file(follow_symlinks=False)
            ]
    legacy = root / folder / f"{stem}.pyc"
    if legacy.is_file() and not legacy.is_symlink():
        found.append(str(legacy))
    return [os.path.relpath(entry, root) for entry in found]


def _read_header(path: Path) -> tuple[bytes, int, int, int] | None:
    try:
        with path.open("rb") as file:
            raw = file.read(_HEADER.size)
    except OSError:
        return None  # who may read it may be running it
    if len(raw) < _HEADER.size:
        return None
    magic, flags, first, second = _HEADER.unpack(raw)
    return magic, flags, first, second


def _keeps_running(
    header: tuple[bytes, int, int, int], size: int | None, now: int
) -> bool:
    _, flags, stamp, recorded = header
    if size is None:
        return True
    if flags & _HASH:
        return not flags & _CHECKED
    # The new file's time is within the seconds this run takes.
    return recorded == size & 0xFFFFFFFF and abs(stamp - now) < 600
