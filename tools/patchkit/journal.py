"""The journal of one write to a tree: what stood there, so that it can come back.

It lies in ``.vllm-patchkit`` below the root and exists only while a write is under
way. Removing ``journal.json`` is the moment a write counts as done; a run that finds
it puts everything back first. Originals are kept as hard links to the very files, or
as copies where the file system or the owner forbids a link.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from patchkit.errors import EnvironmentProblem, OwnBug
from patchkit.folder_handles import parent_handle, root_handle

FOLDER = ".vllm-patchkit"
JOURNAL = "journal.json"
LOCK = "lock"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Meta:
    """Permission bits, owner, group and times (nanoseconds) of an original."""

    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int


@dataclass(frozen=True)
class Step:
    """One path that is written or removed.

    ``saved`` names the original in the journal's folder (None: there was none),
    ``staged`` the temporary file beside the target (None: the path is removed).
    """

    path: str
    saved: str | None
    staged: str | None
    meta: Meta | None


@dataclass
class Journal:
    """Every step of a write, and the folders it makes, outermost first."""

    steps: list[Step] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """The text of ``journal.json``."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Journal:
        """Read what ``to_json`` wrote. Raises OwnBug on anything else."""
        try:
            data = json.loads(text)
            steps = [
                Step(
                    entry["path"],
                    entry["saved"],
                    entry["staged"],
                    Meta(**entry["meta"]) if entry["meta"] else None,
                )
                for entry in data["steps"]
            ]
            return Journal(steps, list(data["folders"]))
        except (ValueError, KeyError, TypeError) as error:
            raise OwnBug(f"{FOLDER}/{JOURNAL} cannot be read: {error}") from None


@contextlib.contextmanager
def locked_folder(root: int, root_path: Path) -> Iterator[int]:
    """The journal's folder as an open handle, locked; removed at the end if empty.

    Raises EnvironmentProblem when another run holds it.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(FOLDER, 0o700, dir_fd=root)
    try:
        folder = os.open(
            FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root
        )
    except OSError as error:
        raise EnvironmentProblem(
            f"{root_path / FOLDER}: {error.strerror}; a folder is wanted there"
        ) from None
    try:
        lock = os.open(LOCK, _FLAGS, 0o600, dir_fd=folder)
        try:
            _take_lock(lock, root_path)
            yield folder
        finally:
            try:
                # While still held: the next run makes and locks a file of its own.
                with contextlib.suppress(OSError):
                    _remove_folder(root, folder)
            finally:
                os.close(lock)
    finally:
        os.close(folder)


def _take_lock(lock: int, root_path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = os.fstat(lock).st_nlink == 0
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        gone = True
    if gone:
        raise EnvironmentProblem(
            f"{root_path}: another run is writing to this tree",
            hint="wait until it ends, then type the same command again",
        )


def _remove_folder(root: int, folder: int) -> None:
    """Without a journal nothing in the folder is needed; with one all of it is."""
    names = os.listdir(folder)
    if JOURNAL in names:
        return
    for name in names:
        os.unlink(name, dir_fd=folder)
    os.rmdir(FOLDER, dir_fd=root)


def write_journal(folder: int, journal: Journal) -> None:
    """Put the journal in place, whole and durable."""
    handle = os.open(f"{JOURNAL}.new", _FLAGS | os.O_TRUNC, 0o600, dir_fd=folder)
    with os.fdopen(handle, "w") as file:
        file.write(journal.to_json())
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{JOURNAL}.new", JOURNAL, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def close_journal(folder: int) -> None:
    """The write is done, or undone: from here on nothing is to be put back."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(JOURNAL, dir_fd=folder)
    # It is decided; a disk that cannot make it durable now changes nothing of that.
    with contextlib.suppress(OSError):
        os.fsync(folder)


def save_original(parent: int, name: str, folder: int, saved: str) -> Meta:
    """Keep the file ``name`` as ``saved`` in the journal's folder.

    As a hard link, which keeps bytes, times, attributes and the inode; otherwise as
    a copy. Returns its metadata.
    """
    info = os.stat(name, dir_fd=parent, follow_symlinks=False)
    meta = Meta(
        stat.S_IMODE(info.st_mode),
        info.st_uid,
        info.st_gid,
        info.st_atime_ns,
        info.st_mtime_ns,
    )
    try:
        os.link(
            name,
            saved,
            src_dir_fd=parent,
            dst_dir_fd=folder,
            follow_symlinks=False,
        )
    except OSError as error:
        # Files of others (protected_hardlinks), file systems without links, too many.
        allowed = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)
        if error.errno not in allowed:
            raise
        _copy(parent, name, folder, saved)
    return meta


def _copy(parent: int, name: str, folder: int, copy: str) -> None:
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent)
    with os.fdopen(source, "rb") as file:
        data = file.read()
        handle = os.open(copy, _FLAGS | os.O_TRUNC, 0o600, dir_fd=folder)
        with os.fdopen(handle, "wb") as target:
            target.write(data)
            target.flush()
            os.fsync(target.fileno())
        copy_attributes(file.fileno(), copy, folder)


def copy_attributes(source: int, name: str, folder: int) -> None:
    """Copy extended attributes (ACLs among them) where the system has them."""
    if not hasattr(os, "listxattr"):
        return
    target = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        with contextlib.suppress(OSError):
            for key in os.listxattr(source):
                with contextlib.suppress(OSError):
                    os.setxattr(target, key, os.getxattr(source, key))
    finally:
        os.close(target)


def put_back(root: int, folder: int, journal: Journal) -> int:
    """Undo every step of ``journal``; can be broken off and begun again.

    Returns how many paths were restored.
    """
    restored = 0
    for step in reversed(journal.steps):
        try:
            with parent_handle(root, step.path) as (parent, name):
                restored += _put_back_one(parent, name, folder, step)
        except FileNotFoundError:
            continue  # its folder was never made
    for path in reversed(journal.folders):
        with contextlib.suppress(OSError), parent_handle(root, path) as (parent, name):
            os.rmdir(name, dir_fd=parent)
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
    try:
        kept = os.stat(step.saved, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False  # put back by a run that was broken off later
    with contextlib.suppress(FileNotFoundError):
        now = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if (now.st_dev, now.st_ino) == (kept.st_dev, kept.st_ino):
            os.unlink(step.saved, dir_fd=folder)
            return False
    assert step.meta is not None
    if kept.st_uid != step.meta.uid or kept.st_gid != step.meta.gid:
        with contextlib.suppress(PermissionError):
            os.chown(step.saved, step.meta.uid, step.meta.gid, dir_fd=folder)
    if stat.S_IMODE(kept.st_mode) != step.meta.mode:
        os.chmod(step.saved, step.meta.mode, dir_fd=folder)
    os.utime(step.saved, ns=(step.meta.atime_ns, step.meta.mtime_ns), dir_fd=folder)
    os.rename(step.saved, name, src_dir_fd=folder, dst_dir_fd=parent)
    return True


@dataclass(frozen=True)
class Recovery:
    """What ``recover`` found: how many files an interrupted run had changed."""

    restored: int


def recover(root: Path) -> Recovery | None:
    """Put a tree back that an interrupted run left; None where there was none.

    Raises EnvironmentProblem when that run is still going, or when the tree cannot
    be written.
    """
    if not (root / FOLDER).is_dir():
        return None
    try:
        if not (root / FOLDER / JOURNAL).exists():
            # Nothing to put back; what else lies there goes if it can.
            with (
                contextlib.suppress(OSError, EnvironmentProblem),
                root_handle(root) as handle,
                locked_folder(handle, root),
            ):
                pass
            return None
        with root_handle(root) as handle, locked_folder(handle, root) as folder:
            try:
                file = os.open(JOURNAL, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
            except FileNotFoundError:
                return None  # the run that wrote it has just ended
            with os.fdopen(file) as text:
                journal = Journal.from_json(text.read())
            restored = put_back(handle, folder, journal)
            close_journal(folder)
            return Recovery(restored)
    except OSError as error:
        raise EnvironmentProblem(
            f"{root}: an interrupted run must be undone first, and cannot be: "
            f"{error.strerror}",
            hint="run as a user who may write the tree",
        ) from None
