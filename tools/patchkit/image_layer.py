"""The one layer of a patched image, as a tar that two builds make alike."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import dataclass
from typing import Protocol

from patchkit.errors import UsageError
from patchkit.file_state import EXECUTABLE
from patchkit.image_source import Metadata
from patchkit.plan_types import PlannedFile

# 2026-01-01T00:00:00Z: fixed, so that the same patches give the same layer.
TIME_STAMP = 1767225600


class MetadataSource(Protocol):
    """What the base records of its files and folders."""

    def metadata(self, path: str) -> Metadata | None:
        """Of a file, None where it is absent."""

    def folder(self, path: str) -> Metadata | None:
        """Of a folder, None where it is absent."""


@dataclass(frozen=True)
class Layer:
    """The tar, to be unpacked at the package root, and what is in it.

    ``folders`` are there so that their time stamps stay; ``files`` are the changes.
    """

    tar: bytes
    files: dict[str, Metadata]
    folders: tuple[str, ...]


def time_stamp() -> int:
    """Seconds since the epoch for written files; SOURCE_DATE_EPOCH is obeyed.

    Raises UsageError when that is no number.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return TIME_STAMP
    if not text.isdigit():
        raise UsageError(f"SOURCE_DATE_EPOCH is {text!r}; wanted: seconds, a number")
    return int(text)


def make_layer(changes: tuple[PlannedFile, ...], base: MetadataSource) -> Layer:
    """Pack the after-images of ``changes``; modes and owners are the base's.

    A new file gets 644 or 755 and its folder's owner, a new folder its parent's mode
    and owner. Raises UsageError for a removal, which a layer cannot hold.
    """
    stamp = time_stamp()
    files: dict[str, Metadata] = {}
    folders: dict[str, Metadata] = {}
    for change in changes:
        if change.after is None:
            raise UsageError(f"{change.path}: a series for images may not remove files")
        parent = _add_folders(change.path, base, folders, stamp)
        old = base.metadata(change.path)
        executable = change.after.mode == EXECUTABLE
        if old is None:
            mode = 0o755 if executable else 0o644
            files[change.path] = Metadata(mode, parent.uid, parent.gid, stamp)
        else:
            mode = old.mode
            if change.before is not None and change.before.mode != change.after.mode:
                mode = mode | 0o111 if executable else mode & ~0o111
            files[change.path] = Metadata(mode, old.uid, old.gid, stamp)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, meta in sorted(folders.items()):
            entry = _entry(path, meta)
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
        for change in sorted(changes, key=lambda change: change.path):
            assert change.after is not None
            entry = _entry(change.path, files[change.path])
            entry.size = len(change.after.data)
            tar.addfile(entry, io.BytesIO(change.after.data))
    return Layer(buffer.getvalue(), files, tuple(sorted(folders)))


def _add_folders(
    path: str, base: MetadataSource, folders: dict[str, Metadata], stamp: int
) -> Metadata:
    """Note the folders above ``path``, with their own time stamps; the innermost."""
    parts = path.split("/")[:-1]
    meta = Metadata(0o755, 0, 0, stamp)
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        found = folders.get(folder) or base.folder(folder)
        meta = found or Metadata(meta.mode, meta.uid, meta.gid, stamp)
        folders[folder] = meta
    return meta


def _entry(path: str, meta: Metadata) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.mode, entry.uid, entry.gid = meta.mode, meta.uid, meta.gid
    entry.mtime = meta.mtime
    return entry
