"""What a broken-off write left is put right before anything else is done."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import EnvironmentProblem
from patchkit.folder_handles import names_in, root_handle
from patchkit.journal import (
    ATTRIBUTES,
    DONE,
    FOLDER,
    JOURNAL,
    close_journal,
    is_open,
    locked_folder,
    read_journal,
)
from patchkit.originals import edited_since, put_back


@dataclass(frozen=True)
class Recovery:
    """What ``recover`` did: how many files it put back, or that the write had been
    ``finished`` and only its leftovers went."""

    restored: int = 0
    finished: bool = False

    def __str__(self) -> str:
        if self.finished:
            return "an earlier run had written everything; its leftovers were removed"
        return f"an interrupted run was undone first: {self.restored} files put back"


def recover(root: Path) -> Recovery | None:
    """Put a tree right that an interrupted run left; None where there was none.

    Raises EnvironmentProblem when that run is still going, when the tree cannot be
    written, or when a file was edited since, which the undo would overwrite.
    """
    try:
        with root_handle(root) as handle:
            names = _names(handle)
            if names is None or names == {ATTRIBUTES}:
                return None
            if JOURNAL not in names:
                return _tidy_up(handle, root, finished=DONE in names)
            with locked_folder(handle, root) as folder:
                if not is_open(folder):
                    return None  # the run that wrote it has just ended
                return _undo(handle, folder, root)
    except OSError as error:
        raise EnvironmentProblem(
            f"{root}: cannot be looked into, or an interrupted run in it cannot be "
            f"undone: {os.strerror(error.errno or 0)}",
            hint="run as a user who may write the tree",
        ) from None


def _names(root: int) -> set[str] | None:
    try:
        folder = os.open(
            FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return names_in(folder)
    finally:
        os.close(folder)


def _tidy_up(handle: int, root: Path, *, finished: bool) -> Recovery | None:
    """Nothing is to be put back; what else lies there goes if it can."""
    with (
        contextlib.suppress(OSError, EnvironmentProblem),
        locked_folder(handle, root),
    ):
        return Recovery(finished=True) if finished else None
    return None


def _undo(handle: int, folder: int, root: Path) -> Recovery:
    where = root / FOLDER
    try:
        journal = read_journal(folder)
    except ValueError as error:
        raise EnvironmentProblem(
            f"{where / JOURNAL} cannot be read: {error}",
            hint=f"if nothing is to be put back, remove {where}",
        ) from None
    if edited := edited_since(handle, folder, journal):
        raise EnvironmentProblem(
            f"{root / edited[0]} was edited after a run was broken off, and undoing "
            f"that run would overwrite it ({len(edited)} such files)",
            hint="move your version away and type the same command again; or, if the "
            f"whole tree was replaced since, remove {where}",
        )
    restored = put_back(handle, folder, journal)
    close_journal(folder, done=False)
    return Recovery(restored)
