"""Patches that contradict each other are refused with the reason, on any tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from real_git import diffs, lines

from patchkit.apply_command import Action, Request, run
from patchkit.contradictions import check_together
from patchkit.file_state import EXECUTABLE, FileState
from patchkit.findings import has_errors
from patchkit.parse import parse_patch
from patchkit.verify import verify_files

ONE = {
    "m.txt": FileState(lines(*"abcdefgh")),
    "old": FileState(lines(*"moved")),
    "run": FileState(lines("run")),
}
TWO = {
    "m.txt": FileState(lines(*"abcDefgh")),
    "new": FileState(lines(*"moved")),
    "run": FileState(lines("run"), EXECUTABLE),
    "made": FileState(lines("made")),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two trees, a patch from one to the other, back, copies, and without ids."""
    (tmp_path / "git").mkdir()
    there, back = diffs(tmp_path / "git", [ONE, TWO, ONE])
    bare = re.sub(rb"(?m)^index .*\n", b"", there)
    back_bare = re.sub(rb"(?m)^index .*\n", b"", back)
    for name, data in (
        ("p", there),
        ("copy", b"Subject: the same\n\n" + there),
        ("back", back),
        ("bare", bare),
        ("back-bare", back_bare),
    ):
        (tmp_path / f"{name}.patch").write_bytes(data)
    for tree, files in (("one", ONE), ("two", TWO)):
        for path, state in files.items():
            file = tmp_path / tree / path
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(state.data)
            file.chmod(state.mode & 0o777)
    return tmp_path


PAIRS = [
    ("p", "p", "given twice"),
    ("p", "copy", "the same change as"),
    ("p", "bare", "the same change as"),
    ("p", "back", "takes back what"),
    ("p", "back-bare", "takes back what"),
    ("bare", "back-bare", "takes back what"),
    ("back", "p", "takes back what"),
]


@pytest.mark.parametrize(("first", "second", "said"), PAIRS)
@pytest.mark.parametrize("tree", ["one", "two"])
def test_refused(folder: Path, tree: str, first: str, second: str, said: str) -> None:
    names = tuple(str(folder / f"{name}.patch") for name in (first, second))
    actions: tuple[Action, ...] = ("check", "apply", "status", "revert")
    for action in actions:
        outcome = run(Request(folder / tree, action, patches=names))
        assert outcome.state == "refused"
        [found] = [each for each in outcome.findings if each.severity == "error"]
        assert (found.path, found.code) == (names[1], "T234")
        assert said in found.message
    assert has_errors(verify_files(names, tree=folder / tree).findings)


def test_equal_hunks_of_a_growing_file_are_two_changes(tmp_path: Path) -> None:
    """One more line among equal ones each time: only the ids tell the two apart."""
    trees = [{"m": FileState(b"x\n" * count)} for count in (8, 9, 10)]
    pair = [
        parse_patch(data, str(number)).patch
        for number, data in enumerate(diffs(tmp_path, trees))
    ]
    assert check_together([patch for patch in pair if patch]) == []


def test_a_later_patch_may_take_back_a_part(tmp_path: Path) -> None:
    part = {**TWO, "m.txt": ONE["m.txt"]}
    pair = [
        parse_patch(data, str(number)).patch
        for number, data in enumerate(diffs(tmp_path, [ONE, TWO, part]))
    ]
    assert check_together([patch for patch in pair if patch]) == []
