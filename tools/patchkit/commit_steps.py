"""The single steps of a write: judge whether it can be, stage, rename, move away."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from dataclasses import dataclass, field, replace

from patchkit.attributes import (
    Attributes,
    Owned,
    new_file,
    new_folder,
    wanted_mode,
)
from patchkit.blob import blob_id
from patchkit.file_state import EXECUTABLE, FileState
from patchkit.folder_handles import missing_folders, parent_handle, status, sync
from patchkit.journal import Step
from patchkit.originals import (
    copy_attributes,
    give_owner,
    move_away,
    save_original,
)
from patchkit.plan_types import PlannedFile

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Job:
    """What is to be written: files that change, and all paths that go.

    ``stale`` are those of ``gone`` that nobody will miss; ``known`` the attributes
    kept by an earlier write.
    """

    changes: tuple[PlannedFile, ...]
    stale: frozenset[str]
    gone: tuple[str, ...]
    known: Attributes
    after: dict[str, FileState] = field(init=False, repr=False)
    moved: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        after = {file.path: file.after for file in self.changes if file.after}
        moved = {file.path: file.moved_from for file in self.changes if file.moved_from}
        object.__setattr__(self, "after", after)
        object.__setattr__(self, "moved", moved)

    @property
    def written(self) -> tuple[str, ...]:
        """The paths that are written."""
        return tuple(self.after)

    def missing_folders(self, root: int) -> list[str]:
        """The folders that have to be made, outermost first."""
        found: dict[str, None] = {}
        for path in self.after:
            found.update(dict.fromkeys(missing_folders(root, path)))
        return list(found)

    def with_file(self, file: PlannedFile) -> Job:
        """The same with one more file, unless that does not change."""
        if file.before == file.after:
            return self
        gone = self.gone if file.after else (*self.gone, file.path)
        return replace(self, changes=(*self.changes, file), gone=gone)


def prepare(root: int, folder: int, job: Job) -> list[Step]:
    """Keep the originals and say what will be done; the tree is not touched.

    Raises OSError where a folder may not be written, an owner could not be given
    back, or the disk is too full.
    """
    steps = []
    token = secrets.token_hex(4)
    need: dict[int, int] = {}
    for number, path in enumerate((*job.after, *job.gone)):
        after = job.after.get(path)
        staged = f".{number}.{token}.vllm-patchkit" if after else None
        saved: str | None = f"original-{number}"
        try:
            with parent_handle(root, path) as (parent, name):
                _check_writable(parent)
                info = status(parent, name)
                if info is not None and path not in job.stale:
                    _check_owner(info)
                if after:
                    _check_space(parent, len(after.data), need)
                    if info is not None:
                        save_original(parent, name, folder, f"original-{number}")
        except FileNotFoundError:
            info = None
        if info is None:
            saved = None
            if not after:
                continue  # stale bytecode that is gone by now
        steps.append(Step(path, saved, staged, blob_id(after.data) if after else None))
    return steps


def _check_writable(parent: int) -> None:
    effective = os.access in os.supports_effective_ids
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=parent, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _check_owner(info: os.stat_result) -> None:
    """Only root can give a file to someone else again."""
    user = os.geteuid()
    if user != 0 and (
        info.st_uid != user or info.st_gid not in {os.getegid(), *os.getgroups()}
    ):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _check_space(parent: int, size: int, need: dict[int, int]) -> None:
    """Old and new files lie side by side until the end; say early if they cannot."""
    device = os.fstat(parent).st_dev
    need[device] = need.get(device, 0) + size
    disk = os.fstatvfs(parent)
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    if disk.f_blocks and need[device] > free * disk.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def make_folder(root: int, path: str, known: Attributes) -> None:
    """Make one folder, with the attributes kept for it or those of its parent."""
    with parent_handle(root, path) as (parent, name):
        _check_writable(parent)
        wanted = known.get(f"{path}/") or new_folder(os.fstat(parent))
        os.mkdir(name, 0o700, dir_fd=parent)
        handle = os.open(
            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent
        )
        try:
            give_owner(handle, wanted.uid, wanted.gid)
            os.fchmod(handle, wanted.mode)
        finally:
            os.close(handle)
        sync(parent)


def stage(root: int, step: Step, job: Job) -> None:
    """Write the new file, whole and durable, beside its target."""
    if step.staged is None:
        return
    after = job.after[step.path]
    executable = after.mode == EXECUTABLE
    # The file whose permissions and owner it gets, while all are where they were.
    like = job.moved.get(step.path) or (step.path if step.saved is not None else None)
    with parent_handle(root, step.path) as (parent, _):
        handle = os.open(step.staged, _CREATE, 0o600, dir_fd=parent)
        with os.fdopen(handle, "wb") as file:
            file.write(after.data)
            file.flush()
            if like is None:
                wanted = new_file(os.fstat(parent), executable=executable)
            else:
                wanted = _take_after(root, like, file.fileno())
                mode = wanted_mode(
                    job.known, step.path, wanted.mode, executable=executable
                )
                wanted = replace(wanted, mode=mode)
            kept = job.known.get(step.path) if step.saved is None else None
            # What was kept may be of a file of another mode.
            if kept and executable == bool(kept.mode & stat.S_IXUSR):
                wanted = kept
            give_owner(file.fileno(), wanted.uid, wanted.gid)
            # Last: a change of owner clears set-user-id bits, an ACL sets others.
            os.fchmod(file.fileno(), wanted.mode)
            os.fsync(file.fileno())


def _take_after(root: int, like: str, handle: int) -> Owned:
    """Give a staged file the attributes of the file ``like``; its owner and mode."""
    with parent_handle(root, like) as (parent, name):
        original = os.open(name, _READ, dir_fd=parent)
        try:
            info = os.fstat(original)
            copy_attributes(original, handle)
        finally:
            os.close(original)
    return Owned(stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)


def carry_out(root: int, folder: int, step: Step) -> None:
    """Put the staged file in its place, or move away what goes."""
    with parent_handle(root, step.path) as (parent, name):
        if step.staged is not None:
            # A rename gives the name another inode: hard links elsewhere, such as
            # those of uv's or conda's cache, keep the old bytes.
            os.rename(step.staged, name, src_dir_fd=parent, dst_dir_fd=parent)
        elif step.saved is not None:
            move_away(parent, name, folder, step.saved)
