"""Originals of a write: kept aside, and put back. See ``patchkit.journal``."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from patchkit.blob import blob_id
from patchkit.folder_handles import (
    parent_handle,
    remove_folders,
    status,
    sync_folder,
)
from patchkit.journal import Journal, Step

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# Signatures of the old content: on the new one the kernel would refuse to open it.
_OF_CONTENT = ("security.ima", "security.evm")


def save_original(parent: int, name: str, folder: int, saved: str) -> None:
    """Keep the file ``name`` as ``saved`` in the journal's folder, and in its place.

    As a hard link, which keeps bytes, times, attributes and the inode; as a copy
    where a link cannot be.
    """
    try:
        os.link(
            name, saved, src_dir_fd=parent, dst_dir_fd=folder, follow_symlinks=False
        )
    except OSError as error:
        # Immutable files, file systems without links, too many, a mount between.
        allowed = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)
        if error.errno not in allowed:
            raise
        _copy(parent, name, folder, saved)


def move_away(parent: int, name: str, folder: int, saved: str) -> None:
    """Remove the file ``name``; it lies as ``saved`` in the journal's folder then.

    A rename needs no right to the file itself, and keeps its owner.
    """
    try:
        os.rename(name, saved, src_dir_fd=parent, dst_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(parent, name, folder, saved)
        os.unlink(name, dir_fd=parent)


def _copy(parent: int, name: str, folder: int, copy: str, *, part: str = "") -> None:
    """Under the name ``part`` first: a copy that was broken off is no original."""
    part = part or f"{copy}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
    source = os.open(name, _READ, dir_fd=parent)
    with os.fdopen(source, "rb") as file:
        info = os.fstat(file.fileno())
        target = os.open(part, _WRITE, 0o600, dir_fd=folder)
        with os.fdopen(target, "wb") as out:
            out.write(file.read())
            out.flush()
            give_owner(out.fileno(), info.st_uid, info.st_gid)
            copy_attributes(file.fileno(), out.fileno())
            os.fchmod(out.fileno(), stat.S_IMODE(info.st_mode))
            os.utime(out.fileno(), ns=(info.st_atime_ns, info.st_mtime_ns))
            os.fsync(out.fileno())
    os.rename(part, copy, src_dir_fd=folder, dst_dir_fd=folder)


def give_owner(handle: int, uid: int, gid: int) -> None:
    """Change owner and group where they differ; this clears set-user-id bits."""
    info = os.fstat(handle)
    if (info.st_uid, info.st_gid) != (uid, gid):
        os.fchown(handle, uid, gid)


def copy_attributes(source: int, target: int) -> None:
    """Copy extended attributes (ACLs among them) where the system has them.

    Setting an ACL sets permission bits: call fchmod afterwards.
    """
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        for key in os.listxattr(source):
            if key not in _OF_CONTENT:
                with contextlib.suppress(OSError):
                    os.setxattr(target, key, os.getxattr(source, key))


def edited_since(root: int, folder: int, journal: Journal) -> list[str]:
    """Paths that hold neither what stood there before nor what was written.

    Cached bytecode is no one's work: whatever lies there may be replaced.
    """
    found = []
    for step in journal.steps:
        if step.path.endswith(".pyc"):
            continue
        with (
            contextlib.suppress(FileNotFoundError),
            parent_handle(root, step.path) as (parent, name),
        ):
            if not _is_known(parent, name, folder, step):
                found.append(step.path)
    return found


def _is_known(parent: int, name: str, folder: int, step: Step) -> bool:
    now = status(parent, name)
    if now is None:
        return True
    if not stat.S_ISREG(now.st_mode):
        return False
    data = _read(parent, name)
    if step.after is not None and blob_id(data) == step.after:
        return True
    if step.saved is None:
        return False
    # Without a saved original the path was not touched yet, or is put back already.
    kept = status(folder, step.saved)
    return kept is None or data == _read(folder, step.saved)


def _read(parent: int, name: str) -> bytes:
    with os.fdopen(os.open(name, _READ, dir_fd=parent), "rb") as file:
        return file.read()


def put_back(root: int, folder: int, journal: Journal) -> int:
    """Undo every step of ``journal``; can be broken off and begun again.

    Returns how many paths were restored.
    """
    restored = 0
    for step in reversed(journal.steps):
        try:
            with parent_handle(root, step.path) as (parent, name):
                restored += _put_back_one(parent, name, folder, step)
            sync_folder(root, step.path)
        except FileNotFoundError:
            continue  # its folder was never made
    remove_folders(root, journal.folders[::-1])
    return restored


def _put_back_one(parent: int, name: str, folder: int, step: Step) -> bool:
    if step.staged is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(step.staged, dir_fd=parent)
    if step.saved is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
            return True
        return False
    if status(folder, step.saved) is None:
        return False  # not touched, or put back by a run that was broken off later
    if _is_original(parent, name, folder, step.saved):
        # Untouched: renaming over it would only put another inode there.
        os.unlink(step.saved, dir_fd=folder)
        return False
    _move_back(parent, name, folder, step.saved)
    return True


def _move_back(parent: int, name: str, folder: int, saved: str) -> None:
    try:
        os.rename(saved, name, src_dir_fd=folder, dst_dir_fd=parent)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # A mount inside the tree. What was saved goes with the journal's folder.
        _copy(folder, saved, parent, name, part=f".{saved}.vllm-patchkit")


def _is_original(parent: int, name: str, folder: int, saved: str) -> bool:
    now, kept = status(parent, name), status(folder, saved)
    if now is None or kept is None:
        return False
    if (now.st_dev, now.st_ino) == (kept.st_dev, kept.st_ino):
        return True
    return (
        (now.st_mode, now.st_uid, now.st_gid, now.st_size)
        == (kept.st_mode, kept.st_uid, kept.st_gid, kept.st_size)
    ) and _read(parent, name) == _read(folder, saved)
