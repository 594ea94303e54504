"""The journal of one write to a tree: what stood there, so that it can come back.

It lies in ``.vllm-patchkit`` below the root and exists only while a write is under
way. What is on the disk decides, never what a process remembers: with
``journal.json`` there the write is undone, and renaming it to ``done.json`` is the
moment at which the write counts. What follows that moment is tidying up.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from patchkit.diff_paths import OWN_FOLDER
from patchkit.errors import EnvironmentProblem, KitError
from patchkit.file_state import checked_parts
from patchkit.folder_handles import names_in, remove_folders, sync

FOLDER = OWN_FOLDER
JOURNAL = "journal.json"
DONE = "done.json"
LOCK = "lock"
# The one file that may outlive a write; see ``patchkit.attributes``.
ATTRIBUTES = "attributes.json"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_SAVED = re.compile(r"original-\d+")
_STAGED = re.compile(r"\.\d+\.[0-9a-f]{8}\.vllm-patchkit")


@dataclass(frozen=True)
class Step:
    """One path that is written or removed.

    ``saved`` names the original in the journal's folder (None: there was none),
    ``staged`` the temporary file beside the target (None: the path is removed).
    ``after`` is the blob id of what is written, None where the path is removed.
    """

    path: str
    saved: str | None
    staged: str | None
    after: str | None = None


@dataclass
class Journal:
    """Every step of a write; the folders it makes, outermost first; and those that
    it leaves empty, innermost first."""

    steps: list[Step] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """The text of ``journal.json``."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Journal:
        """Read what ``to_json`` wrote.

        Raises ValueError on anything else, and on a name that leads out of the tree:
        a journal may have come with a tree that someone else packed.
        """
        try:
            data = json.loads(text)
            steps = [
                Step(
                    _inside(entry["path"]),
                    _named(_SAVED, entry["saved"]),
                    _named(_STAGED, entry["staged"]),
                    entry["after"],
                )
                for entry in data["steps"]
            ]
            folders = [_inside(path) for path in data["folders"]]
            return Journal(steps, folders, [_inside(path) for path in data["emptied"]])
        except (KeyError, TypeError, AttributeError, KitError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None


def _inside(path: str) -> str:
    checked_parts(path)
    return path


def _named(pattern: re.Pattern[str], name: str | None) -> str | None:
    if name is not None and not pattern.fullmatch(name):
        raise ValueError(f"no name of ours: {name!r}")
    return name


@contextlib.contextmanager
def locked_folder(root: int, root_path: Path) -> Iterator[int]:
    """The journal's folder as an open handle, locked; tidied up at the end.

    Raises EnvironmentProblem when another run holds it.
    """
    made = False
    with contextlib.suppress(FileExistsError):
        os.mkdir(FOLDER, 0o700, dir_fd=root)
        made = True
    try:
        folder = os.open(
            FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root
        )
    except OSError as error:
        raise EnvironmentProblem(
            f"{root_path / FOLDER}: {error.strerror}; a folder is wanted there"
        ) from None
    try:
        if made:
            os.fchmod(folder, 0o700)  # whatever the umask took of it
        try:
            lock = os.open(LOCK, _FLAGS, 0o600, dir_fd=folder)
        except FileNotFoundError:
            raise _busy(root_path) from None  # it removed the folder just now
        try:
            # Outside of the block that tidies up: who gets no lock removes none.
            _take_lock(lock, root_path)
            try:
                # Originals lie here for a while, maybe out of closed folders.
                os.fchmod(folder, 0o700)
                yield folder
            finally:
                # While still held: the next run makes and locks a file of its own.
                with contextlib.suppress(OSError, ValueError):
                    _tidy(root, folder)
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
        raise _busy(root_path)


def _busy(root_path: Path) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{root_path}: another run is writing to this tree",
        hint="wait until it ends, then type the same command again",
    )


def _tidy(root: int, folder: int) -> None:
    """Without a journal nothing here is needed but ``attributes.json``; with one
    all of it is. May be broken off anywhere: the next run goes on."""
    names = names_in(folder)
    if JOURNAL in names:
        return
    if DONE in names:
        # One that cannot be removed stays, as with git: no part of the promise.
        with contextlib.suppress(OSError):
            remove_folders(root, read_journal(folder, DONE).emptied)
    for name in sorted(names - {DONE, LOCK, ATTRIBUTES}):
        os.unlink(name, dir_fd=folder)
    if ATTRIBUTES in names:
        os.fchmod(folder, 0o755)  # another user's --check must see no journal here
    for name in (DONE, LOCK):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
    if ATTRIBUTES not in names:
        os.rmdir(FOLDER, dir_fd=root)


def begin(folder: int, root_path: Path) -> None:
    """Make sure that no other write's leftovers are in the locked folder.

    Raises EnvironmentProblem where one has to be undone or tidied up first.
    """
    names = names_in(folder)
    if names & {JOURNAL, DONE}:
        raise EnvironmentProblem(
            f"{root_path}: a run was broken off here just now; nothing was changed",
            hint="type the same command again: it first puts the tree right",
        )
    for name in names - {LOCK, ATTRIBUTES}:
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            raise EnvironmentProblem(
                f"{root_path / FOLDER / name} is none of ours: {error.strerror}",
                hint=f"remove {root_path / FOLDER}, which is this kit's own folder",
            ) from None


def read_journal(folder: int, name: str = JOURNAL) -> Journal:
    """Read a journal. Raises ValueError on one that this kit did not write."""
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)) as file:
        return Journal.from_json(file.read())


def write_journal(root: int, folder: int, journal: Journal) -> None:
    """Put the journal in place, whole and durable, its folder's own name too."""
    handle = os.open(f"{JOURNAL}.new", _FLAGS | os.O_TRUNC, 0o600, dir_fd=folder)
    with os.fdopen(handle, "w") as file:
        file.write(journal.to_json())
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{JOURNAL}.new", JOURNAL, src_dir_fd=folder, dst_dir_fd=folder)
    sync(folder)
    sync(root)


def is_open(folder: int) -> bool:
    """Whether a write is under way that has to be undone."""
    return JOURNAL in names_in(folder)


def close_journal(folder: int, *, done: bool) -> None:
    """The write is done, or undone: from here on nothing is to be put back."""
    if done:
        os.rename(JOURNAL, DONE, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(JOURNAL, dir_fd=folder)
    # It is decided; a disk that cannot make it durable now changes nothing of that.
    with contextlib.suppress(OSError):
        sync(folder)
