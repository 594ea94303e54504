"""What a removal would lose, so that ``--revert`` can give it back.

A diff knows one bit of a file's permissions and no owner. Where a removed file, a
folder that went with it, or a changed mode had others than a new one would get, they
are kept in ``.vllm-patchkit/attributes.json``; the revert takes them from there and
removes the file. In a tree with ordinary modes it never comes to be.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from patchkit.errors import EnvironmentProblem
from patchkit.file_state import EXECUTABLE
from patchkit.folder_handles import new_folder_mode, parent_handle, status
from patchkit.journal import ATTRIBUTES, FOLDER
from patchkit.plan_types import PlannedFile

PATH = f"{FOLDER}/{ATTRIBUTES}"


@dataclass(frozen=True)
class Owned:
    """Permission bits, owner and group."""

    mode: int
    uid: int
    gid: int


# By path; a folder's ends in a slash.
Attributes = Mapping[str, Owned]


def load(data: bytes | None) -> Attributes:
    """Read ``attributes.json``.

    Set-id bits of files are not believed: the file may have come with the tree.
    Raises EnvironmentProblem where it cannot be read.
    """
    if data is None:
        return {}
    try:
        found = {
            str(path): Owned(int(said["mode"]), int(said["uid"]), int(said["gid"]))
            for path, said in json.loads(data)["paths"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentProblem(
            f"{PATH} cannot be read: {error}",
            hint="remove it: modes and owners of removed files are lost then",
        ) from None
    return {
        path: Owned(
            said.mode & (0o3777 if path.endswith("/") else 0o1777), said.uid, said.gid
        )
        for path, said in found.items()
    }


def dump(attributes: Attributes) -> bytes | None:
    """The bytes of ``attributes.json``; None where nothing has to be kept."""
    if not attributes:
        return None
    paths = {path: asdict(attributes[path]) for path in sorted(attributes)}
    return (json.dumps({"schema": 1, "paths": paths}, indent=1) + "\n").encode()


def new_file(parent: os.stat_result, *, executable: bool) -> Owned:
    """What a new file gets: 644 or 755 whatever the umask, as root its folder's
    owner."""
    return Owned(0o755 if executable else 0o644, *_new_owner(parent))


def new_folder(parent: os.stat_result) -> Owned:
    """What a new folder gets: its parent's permissions and, as root, its owner."""
    return Owned(new_folder_mode(parent), *_new_owner(parent))


def _new_owner(parent: os.stat_result) -> tuple[int, int]:
    if os.geteuid() == 0:
        return parent.st_uid, parent.st_gid
    inherits = parent.st_mode & stat.S_ISGID
    return os.geteuid(), parent.st_gid if inherits else os.getegid()


def changed_mode(mode: int, *, executable: bool) -> int:
    """Permission bits of an existing file once git's one bit is as told."""
    if executable and not mode & stat.S_IXUSR:
        return mode | (mode & 0o444) >> 2
    if not executable and mode & stat.S_IXUSR:
        return mode & ~0o111
    return mode


def wanted_mode(known: Attributes, path: str, mode: int, *, executable: bool) -> int:
    """As ``changed_mode``, but the mode that was kept, where that is meant."""
    kept = known.get(path)
    changes = executable != bool(mode & stat.S_IXUSR)
    if changes and kept and executable == bool(kept.mode & stat.S_IXUSR):
        return kept.mode
    return changed_mode(mode, executable=executable)


def to_keep(
    root: int,
    known: Attributes,
    changes: Sequence[PlannedFile],
    made: Sequence[str],
    emptied: Sequence[str],
    *,
    remember: bool,
) -> Attributes:
    """What has to be kept once ``changes`` are made, folders ``made`` and
    ``emptied``. Without ``remember`` (a revert) only less than before."""
    touched = {file.path for file in changes}
    touched |= {f"{folder}/" for folder in (*made, *emptied)}
    left = {path: said for path, said in known.items() if path not in touched}
    if not remember:
        return left
    heirs = {file.moved_from: file for file in changes if file.moved_from}
    for file in changes:
        if file.before is None:
            continue
        heir = heirs.get(file.path, file)
        with parent_handle(root, file.path) as (parent, name):
            info = status(parent, name)
            if info is None:
                continue
            now, was = _owned(info), file.before.mode == EXECUTABLE
            if heir.after is None:
                back = new_file(os.fstat(parent), executable=was)
            else:
                executable = heir.after.mode == EXECUTABLE
                mode = wanted_mode(known, heir.path, now.mode, executable=executable)
                back = replace(now, mode=changed_mode(mode, executable=was))
            if back != now:
                left[file.path] = now
    for folder in emptied:
        if folder.endswith("__pycache__"):
            continue
        with parent_handle(root, folder) as (parent, name):
            info = status(parent, name)
            if info is not None and _owned(info) != new_folder(os.fstat(parent)):
                left[f"{folder}/"] = _owned(info)
    return left


def _owned(info: os.stat_result) -> Owned:
    return Owned(stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)
