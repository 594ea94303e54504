"""Modes and owners that a diff does not know come back with a revert."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from real_git import diffs
from test_commit import NOBODY, snapshot

from patchkit.apply_command import Request, run
from patchkit.attributes import PATH, changed_mode, load
from patchkit.commit import commit_to_tree
from patchkit.errors import EnvironmentProblem
from patchkit.file_state import EXECUTABLE, REGULAR, FileState
from patchkit.journal import FOLDER
from patchkit.plan_types import Plan, PlannedFile
from patchkit.recovery import recover


def there_and_back(root: Path, *files: PlannedFile) -> bool:
    """Write and revert; tell whether anything had to be kept in between."""
    commit_to_tree(Plan("apply", files), root)
    kept = (root / PATH).exists()
    assert recover(root) is None  # it is no leftover
    if kept:
        # Others must be able to see that no journal is there.
        assert (root / FOLDER).stat().st_mode & 0o777 == 0o755
    assert (root / PATH).exists() == kept
    back = tuple(PlannedFile(file.path, file.after, file.before) for file in files)
    commit_to_tree(Plan("apply", back), root, remember=False)
    assert not (root / FOLDER).exists()
    return kept


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o700, 0o711, 0o754, 0o755])
@pytest.mark.parametrize("change", ["remove", "flip"])
def test_every_mode_comes_back(tmp_path: Path, mode: int, change: str) -> None:
    (tmp_path / "f").write_bytes(b"f")
    (tmp_path / "f").chmod(mode)
    before = snapshot(tmp_path)
    states = [REGULAR, EXECUTABLE] if not mode & 0o100 else [EXECUTABLE, REGULAR]
    after = None if change == "remove" else FileState(b"f", states[1])
    kept = there_and_back(tmp_path, PlannedFile("f", FileState(b"f", states[0]), after))
    assert snapshot(tmp_path) == before
    if mode in (0o644, 0o755):
        assert not kept, "nothing is to be kept of ordinary files"


def test_folders_that_went_come_back(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").write_bytes(b"f")
    (tmp_path / "d").chmod(0o2770)
    (tmp_path / "d/e").chmod(0o750)
    if os.geteuid() == 0:
        os.chown(tmp_path / "d/e", NOBODY, NOBODY)
        (tmp_path / "d/e").chmod(0o750)
    before = snapshot(tmp_path)
    assert there_and_back(tmp_path, PlannedFile("d/e/f", FileState(b"f"), None))
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755, 0o754])
@pytest.mark.parametrize("edit", ["none", "text", "flip", "chain", "trade"])
def test_a_renamed_file_keeps_them(tmp_path: Path, mode: int, edit: str) -> None:
    """As git mv would: they go with the file, and come back with it."""
    root = tmp_path / "tree"
    text = b"".join(b"line = %d\n" % number for number in range(20))
    git_mode = EXECUTABLE if mode & 0o100 else REGULAR
    old = FileState(text, git_mode)
    trees = [{"d/old": old, "b": FileState(b"b\n" * 9)}]
    new = FileState(
        text.replace(b"= 9", b"= nine") if edit in ("text", "trade") else text,
        git_mode ^ 0o111 if edit == "flip" else git_mode,
    )
    trees.append({"new": new, "b": trees[0]["b"]})
    path = "new"
    if edit == "chain":
        trees.append({"e/new": new, "b": trees[0]["b"]})
        path = "e/new"
    elif edit == "trade":
        trees.append({"d/old": trees[0]["b"], "new": new})
        trees.append({"d/old": trees[0]["b"], "b": new})
        path = "b"
    (tmp_path / "git").mkdir()
    names = []
    for number, data in enumerate(diffs(tmp_path / "git", trees)):
        names.append(tmp_path / f"{number}.patch")
        names[-1].write_bytes(data)
    for name, state in trees[0].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(state.data)
        (root / name).chmod(0o604)
    (root / "d/old").chmod(mode)
    if os.geteuid() == 0:
        os.chown(root / "d/old", NOBODY, NOBODY)
    before = snapshot(root)
    patches = tuple(map(str, names))
    assert run(Request(root, patches=patches)).state == "applied"
    info = (root / path).stat()
    if edit != "flip":
        assert info.st_mode & 0o7777 == mode
    assert info.st_uid == (NOBODY if os.geteuid() == 0 else os.geteuid())
    if edit == "trade":
        assert (root / "d/old").stat().st_mode & 0o7777 == 0o604
    if edit != "flip":
        assert not (root / PATH).exists()
    assert run(Request(root, "revert", patches=patches)).state == "reverted"
    assert snapshot(root) == before


def test_a_revert_keeps_nothing(tmp_path: Path) -> None:
    """A created file whose mode the user changed is gone for good."""
    new = FileState(b"f")
    commit_to_tree(Plan("apply", (PlannedFile("f", None, new),)), tmp_path)
    (tmp_path / "f").chmod(0o600)
    back = Plan("apply", (PlannedFile("f", new, None),))
    commit_to_tree(back, tmp_path, remember=False)
    assert list(tmp_path.iterdir()) == []


def test_set_id_bits_are_not_believed(tmp_path: Path) -> None:
    """The file may have come with a tree that someone else packed."""
    said = {"mode": 0o6755, "uid": os.geteuid(), "gid": os.getegid()}
    (tmp_path / FOLDER).mkdir()
    (tmp_path / PATH).write_text(json.dumps({"schema": 1, "paths": {"f": said}}))
    new = PlannedFile("f", None, FileState(b"f", EXECUTABLE))
    commit_to_tree(Plan("apply", (new,)), tmp_path)
    assert (tmp_path / "f").stat().st_mode & 0o7777 == 0o755
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"paths": {"f": 3}}', b"\xff"])
def test_a_broken_one_is_told(data: bytes) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot be read"):
        load(data)


@pytest.mark.parametrize(
    ("mode", "executable", "wanted"),
    [
        (0o640, True, 0o750),
        (0o600, True, 0o700),
        (0o755, False, 0o644),
        (0o755, True, 0o755),
        (0o664, True, 0o775),
    ],
)
def test_execution_follows_reading(mode: int, executable: bool, wanted: int) -> None:
    assert changed_mode(mode, executable=executable) == wanted
