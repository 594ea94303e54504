"""Writes a plan to a tree, all or nothing.

Order: lock, compare the tree with the plan once more, keep the originals and write
the journal, stage every new file beside its target, then rename each over its target
and remove what goes. Any failure on the way puts everything back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from patchkit.errors import EnvironmentProblem, KitError, Refused
from patchkit.file_state import EXECUTABLE, FileState
from patchkit.folder_handles import (
    missing_folders,
    parent_handle,
    remove_empty_folders,
    root_handle,
    sync_folder,
)
from patchkit.journal import (
    FOLDER,
    Journal,
    Step,
    close_journal,
    copy_attributes,
    locked_folder,
    put_back,
    save_original,
    write_journal,
)
from patchkit.plan_types import Plan, PlannedFile
from patchkit.tree_source import TreeSource

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class CommitResult:
    """The paths written and those removed, in the plan's order."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


def commit_to_tree(
    plan: Plan, root: Path, *, stale: tuple[str, ...] = ()
) -> CommitResult:
    """Give the tree at ``root`` the plan's bytes and modes.

    Permission bits, owner, group and extended attributes of a changed file stay. A
    new file gets 644 or 755 whatever the umask, and as root its folder's owner.
    ``stale`` are further paths to remove, such as cached bytecode. A hard link of a
    changed file elsewhere (a package manager's cache) keeps the old bytes.

    Raises Refused when the tree is no longer what was planned for or may not be
    written, EnvironmentProblem on a full disk or another run; then, as on Ctrl-C and
    SIGTERM, nothing has changed. Folders that a removal leaves empty go, as with git.
    """
    changes = plan.changes
    removed = [file.path for file in changes if file.after is None]
    gone = [*removed, *(path for path in stale if path not in removed)]
    writes = [file for file in changes if file.after is not None]
    if not changes and not gone:
        return CommitResult((), ())
    try:
        with (
            _sigterm_interrupts(),
            root_handle(root) as handle,
            locked_folder(handle, root) as folder,
        ):
            _compare(changes, root)
            _write(handle, folder, writes, gone)
            for path in gone:
                remove_empty_folders(handle, path)
    except OSError as error:
        raise _problem(root, error) from None
    return CommitResult(tuple(file.path for file in writes), tuple(gone))


def _compare(changes: tuple[PlannedFile, ...], root: Path) -> None:
    source = TreeSource(root)
    for file in changes:
        if source.read(file.path) != file.before:
            raise Refused(
                f"{root / file.path} changed while the patches were checked",
                hint="nothing was written; type the same command again",
            )


def _write(root: int, folder: int, writes: list[PlannedFile], gone: list[str]) -> None:
    journal = _prepare(root, folder, writes, gone)
    try:
        write_journal(folder, journal)
        for path in journal.folders:
            _make_folder(root, path)
        staged = {step.path: step for step in journal.steps}
        for file in writes:
            assert file.after is not None
            _stage(root, staged[file.path], file.after)
        for step in journal.steps:
            _carry_out(root, step)
        for step in journal.steps:
            sync_folder(root, step.path)
        # From here on the write counts; before, an interrupted one is undone.
        close_journal(folder)
    except BaseException:
        put_back(root, folder, journal)
        close_journal(folder)
        raise


def _prepare(
    root: int, folder: int, writes: list[PlannedFile], gone: list[str]
) -> Journal:
    """Keep the originals and say what will be done; the tree is not touched."""
    journal = Journal()
    token = secrets.token_hex(4)
    paths = [(file.path, True) for file in writes] + [(path, False) for path in gone]
    for number, (path, write) in enumerate(paths):
        for made in missing_folders(root, path):
            if made not in journal.folders:
                journal.folders.append(made)
        staged = f".{number}.{token}.vllm-patchkit" if write else None
        saved, meta = f"original-{number}", None
        try:
            with parent_handle(root, path) as (parent, name):
                _check_writable(parent, path)
                meta = save_original(parent, name, folder, saved)
        except FileNotFoundError:
            pass
        if meta is None and not write:
            continue  # stale bytecode that is gone by now
        journal.steps.append(
            Step(path, saved if meta is not None else None, staged, meta)
        )
    return journal


def _check_writable(parent: int, path: str) -> None:
    effective = os.access in os.supports_effective_ids
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=parent, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _make_folder(root: int, path: str) -> None:
    """A new folder has its parent's permissions and, as root, its owner."""
    with parent_handle(root, path) as (parent, name):
        _check_writable(parent, path)
        info = os.fstat(parent)
        os.mkdir(name, dir_fd=parent)
        if os.geteuid() == 0:
            os.chown(name, info.st_uid, info.st_gid, dir_fd=parent)
        os.chmod(name, stat.S_IMODE(info.st_mode) & 0o2777, dir_fd=parent)
        os.fsync(parent)


def _stage(root: int, step: Step, after: FileState) -> None:
    assert step.staged is not None
    with parent_handle(root, step.path) as (parent, name):
        handle = os.open(step.staged, _CREATE, 0o600, dir_fd=parent)
        with os.fdopen(handle, "wb") as file:
            file.write(after.data)
            file.flush()
            _set_owner_and_mode(file.fileno(), parent, step, after)
            if step.meta is not None:
                original = os.open(name, _READ, dir_fd=parent)
                try:
                    copy_attributes(original, step.staged, parent)
                finally:
                    os.close(original)
            os.fsync(file.fileno())


def _set_owner_and_mode(handle: int, parent: int, step: Step, after: FileState) -> None:
    executable = after.mode == EXECUTABLE
    if step.meta is None:
        mode = 0o755 if executable else 0o644
        if os.geteuid() == 0:
            info = os.fstat(parent)
            os.fchown(handle, info.st_uid, info.st_gid)
    else:
        mode = step.meta.mode
        if executable and not mode & stat.S_IXUSR:
            mode |= (mode & 0o444) >> 2
        elif not executable and mode & stat.S_IXUSR:
            mode &= ~0o111
        info = os.fstat(handle)
        if (info.st_uid, info.st_gid) != (step.meta.uid, step.meta.gid):
            os.fchown(handle, step.meta.uid, step.meta.gid)
    # After chown, which clears set-user-id bits.
    os.fchmod(handle, mode)


def _carry_out(root: int, step: Step) -> None:
    with parent_handle(root, step.path) as (parent, name):
        if step.staged is None:
            os.unlink(name, dir_fd=parent)
        else:
            os.rename(step.staged, name, src_dir_fd=parent, dst_dir_fd=parent)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """SIGTERM during a write ends it like Ctrl-C, so that it is undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _problem(root: Path, error: OSError) -> KitError:
    name = error.filename if isinstance(error.filename, str) else ""
    where = root / name if name and FOLDER not in name else root
    reason = os.strerror(error.errno or errno.EIO)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentProblem(
            f"{where}: the disk is full; nothing was changed",
            hint="free some space and type the same command again",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused(
            f"{where}: may not be written: {reason}; nothing was changed",
            hint="run as the user who owns the tree",
        )
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return Refused(f"{where}: a path passes a symbolic link; nothing was changed")
    return EnvironmentProblem(f"{where}: {reason}; nothing was changed")
