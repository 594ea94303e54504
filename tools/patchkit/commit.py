"""Writes a plan to a tree, all or nothing.

Order: lock, compare the tree with the plan once more, keep the originals and write
the journal, stage every new file beside its target, then rename each over its target
and move away what goes. Any failure on the way puts everything back.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from patchkit import attributes as kept_attributes
from patchkit.attributes import Attributes
from patchkit.commit_steps import (
    Job,
    carry_out,
    make_folder,
    prepare,
    stage,
)
from patchkit.errors import EnvironmentProblem, KitError, Refused
from patchkit.file_state import FileState
from patchkit.folder_handles import emptied_folders, root_handle, sync_folder
from patchkit.interrupts import Interrupts, interrupts
from patchkit.journal import (
    ATTRIBUTES,
    FOLDER,
    Journal,
    begin,
    close_journal,
    is_open,
    locked_folder,
    write_journal,
)
from patchkit.originals import edited_since, put_back
from patchkit.plan_types import Plan, PlannedFile
from patchkit.tree_source import TreeSource


@dataclass(frozen=True)
class CommitResult:
    """The paths written and those removed, in the plan's order."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    """A tree that is written to: its path, and handles of it and of the journal."""

    path: Path
    root: int
    folder: int


def commit_to_tree(
    plan: Plan, root: Path, *, stale: tuple[str, ...] = (), remember: bool = True
) -> CommitResult:
    """Give the tree at ``root`` the plan's bytes and modes.

    Permission bits, owner, group and extended attributes of a changed file stay; its
    time is new, since Python tells by it that bytecode is old. A new file gets 644 or
    755 whatever the umask, and as root its folder's owner. ``stale`` are further
    paths to remove, such as cached bytecode. A hard link of a changed file elsewhere
    (a package manager's cache) keeps the old bytes. Folders that a removal leaves
    empty go, as with git. ``remember`` keeps what a removal would lose of modes and
    owners; a revert takes it from there (see ``patchkit.attributes``) and sets
    ``remember`` to False.

    Raises Refused when the tree is no longer what was planned for or may not be
    written, EnvironmentProblem on a full disk or another run; then, as on Ctrl-C,
    SIGTERM and SIGHUP, nothing has changed.
    """
    changes = plan.changes
    for file in changes:
        if file.path.split("/")[0] == FOLDER:
            raise Refused(f"{file.path}: {FOLDER} is the kit's own folder")
    removed = [file.path for file in changes if file.after is None]
    gone = [*removed, *(path for path in stale if path not in removed)]
    written = tuple(file.path for file in changes if file.after is not None)
    if not changes and not gone:
        return CommitResult((), ())
    try:
        with (
            interrupts() as signals,
            root_handle(root) as handle,
            locked_folder(handle, root) as folder,
        ):
            begin(folder, root)
            _compare(changes, root)
            known, kept = _attributes(root)
            job = Job(changes, frozenset(stale), tuple(gone), known)
            place = _Place(root, handle, folder)
            _write(place, job, kept, signals, remember=remember)
    except OSError as error:
        raise _problem(root, error) from None
    return CommitResult(written, tuple(gone))


def _compare(changes: tuple[PlannedFile, ...], root: Path) -> None:
    source = TreeSource(root)
    for file in changes:
        if source.read(file.path) != file.before:
            raise Refused(
                f"{root / file.path} changed while the patches were checked",
                hint="nothing was written; type the same command again",
            )


def _attributes(root: Path) -> tuple[Attributes, FileState | None]:
    kept = TreeSource(root).read(f"{FOLDER}/{ATTRIBUTES}")
    return kept_attributes.load(kept.data if kept else None), kept


def _write(
    place: _Place,
    job: Job,
    kept: FileState | None,
    signals: Interrupts,
    *,
    remember: bool,
) -> None:
    root, folder = place.root, place.folder
    made = job.missing_folders(root)
    emptied = emptied_folders(root, job.gone, job.written)
    left = kept_attributes.dump(
        kept_attributes.to_keep(
            root, job.known, job.changes, made, emptied, remember=remember
        )
    )
    after = None if left is None else FileState(left)
    job = job.with_file(PlannedFile(kept_attributes.PATH, kept, after))
    journal = Journal(prepare(root, folder, job), made, emptied)
    try:
        write_journal(root, folder, journal)
        for path in made:
            make_folder(root, path, job.known)
        for step in journal.steps:
            stage(root, step, job)
        for step in journal.steps:
            carry_out(root, folder, step)
        for step in journal.steps:
            sync_folder(root, step.path)
        signals.hold()
        # From here on the write counts; before, an interrupted one is undone.
        close_journal(folder, done=True)
    except BaseException as error:
        # The disk decides: before the journal was there nothing had been changed.
        if is_open(folder):
            signals.hold()
            _undo(place, journal, error)
        raise


def _undo(place: _Place, journal: Journal, cause: BaseException) -> None:
    try:
        edited = edited_since(place.root, place.folder, journal)
        if not edited:
            put_back(place.root, place.folder, journal)
            close_journal(place.folder, done=False)
            return
        reason = f"{edited[0]} was written by someone else meanwhile"
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
    what = getattr(cause, "strerror", None) or type(cause).__name__
    raise EnvironmentProblem(
        f"{place.path}: the write broke off ({what}) and is not undone yet: {reason}",
        hint="type the same command again: it first puts the tree back",
    ) from None


def _problem(root: Path, error: OSError) -> KitError:
    name = error.filename if isinstance(error.filename, str) else ""
    where = root / name if name and not name.startswith(FOLDER) else root
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
        return Refused(
            f"{where}: a symbolic link or a file is where a folder is needed; nothing "
            "was changed"
        )
    return EnvironmentProblem(f"{where}: {reason}; nothing was changed")
