"""Git as a second opinion: it agrees with a true plan under any user's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from real_git import Tree, diffs, git, lines

from patchkit import git_engine
from patchkit.diff_model import Patch
from patchkit.errors import EnvironmentProblem, OwnBug
from patchkit.file_state import EXECUTABLE, FileState, MemorySource
from patchkit.git_engine import GitMissing, apply_with_git
from patchkit.parse import parse_patch
from patchkit.plan import Plan, PlannedFile, make_plan, make_revert_plan

TREES: list[Tree] = [
    {"a.py": FileState(lines("a", "b ", "c")), "b.py": FileState(lines("x"))},
    {"a.py": FileState(lines("a", "B  ", "c")), "n.py": FileState(b"", EXECUTABLE)},
    {"a.py": FileState(lines("a", "B  ", "c", "d")), "b.py": FileState(b"x\r\n")},
]


@pytest.fixture
def patches(tmp_path: Path) -> list[Patch]:
    (tmp_path / "made").mkdir()
    out = []
    for number, data in enumerate(diffs(tmp_path / "made", TREES)):
        patch = parse_patch(data, f"{number}.patch").patch
        assert patch is not None
        out.append(patch)
    return out


@pytest.fixture
def plan(patches: list[Patch]) -> Plan:
    return make_plan(patches, MemorySource(TREES[0]), policy="exact")


def test_git_agrees(patches: list[Patch], plan: Plan) -> None:
    assert apply_with_git(patches, plan).seconds > 0


def test_skipped_patches_are_left_out(patches: list[Patch]) -> None:
    plan = make_plan(patches, MemorySource(TREES[1]), policy="exact")
    assert plan.skipped == ("0.patch",)
    apply_with_git(patches, plan)


def test_a_plan_to_revert(patches: list[Patch]) -> None:
    plan = make_revert_plan(patches, MemorySource(TREES[2]), policy="exact")
    apply_with_git(patches, plan, reverse=True)
    with pytest.raises(OwnBug):
        apply_with_git(patches, plan)


def test_nothing_to_do_starts_no_git(
    patches: list[Patch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    plan = make_plan(patches, MemorySource(TREES[2]), policy="exact")
    assert plan.state == "applied"
    assert apply_with_git(patches, plan).seconds == 0


def test_a_hostile_user(
    patches: list[Patch], plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "template" / "info").mkdir(parents=True)
    (home / "template" / "info" / "attributes").write_text("* text eol=crlf\n")
    (home / "attributes").write_text("*.py text eol=crlf\n")
    (home / ".gitconfig").write_text(
        "[core]\nautocrlf = true\nfileMode = false\n"
        f"attributesFile = {home}/attributes\n"
        "[apply]\nwhitespace = fix\nignoreWhitespace = change\n"
        f"[init]\ntemplateDir = {home}/template\n[diff]\nnoprefix = true\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(home / "template"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "apply.whitespace")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "error-all")
    apply_with_git(patches, plan)


def test_inside_a_hook_of_another_repository(
    patches: list[Patch], plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git sets GIT_DIR in a hook, and a tree inside a repository is skipped."""
    top = tmp_path / "top"
    top.mkdir()
    git(top, "init", "-q", ".")
    (top / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(top / "scratch"))
    monkeypatch.setenv("GIT_DIR", str(top / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(top))
    monkeypatch.setenv("GIT_PREFIX", "scratch/")
    apply_with_git(patches, plan)
    assert os.environ["GIT_DIR"] == str(top / ".git")


def test_attributes_of_the_patched_project(tmp_path: Path) -> None:
    trees: list[Tree] = [
        {".gitattributes": FileState(b"* text eol=crlf\n"), "a": FileState(b"1\r\n")},
        {".gitattributes": FileState(b"* text eol=lf\n"), "a": FileState(b"2\r\n")},
    ]
    patch = parse_patch(diffs(tmp_path, trees)[0], "p.patch").patch
    assert patch is not None
    plan = make_plan([patch], MemorySource(trees[0]), policy="exact")
    apply_with_git([patch], plan)


def _broken(plan: Plan, path: str, state: FileState | None) -> Plan:
    files = tuple(
        replace(file, after=state) if file.path == path else file for file in plan.files
    )
    return replace(plan, files=files)


@pytest.mark.parametrize(
    ("path", "state", "words"),
    [
        ("a.py", FileState(lines("a", "B", "c", "d")), "different bytes"),
        ("a.py", FileState(lines("a", "B  ", "c", "d"), EXECUTABLE), "mode"),
        ("a.py", None, "leaves a file"),
        ("n.py", FileState(b""), "no such file"),
    ],
)
def test_any_difference_is_our_bug(
    patches: list[Patch], plan: Plan, path: str, state: FileState | None, words: str
) -> None:
    with pytest.raises(OwnBug, match=words) as caught:
        apply_with_git(patches, _broken(plan, path, state))
    assert caught.value.exit_code == 3


def test_a_file_too_many(patches: list[Patch], plan: Plan) -> None:
    files = tuple(file for file in plan.files if file.path != "b.py")
    with pytest.raises(OwnBug):
        apply_with_git(patches, replace(plan, files=files))


def test_an_offset_is_our_bug(tmp_path: Path) -> None:
    old = lines(*map(str, range(20)))
    new = old.replace(b"9\n", b"nine\n", 1)
    trees: list[Tree] = [{"a": FileState(old)}, {"a": FileState(new)}]
    patch = parse_patch(diffs(tmp_path, trees)[0], "p.patch").patch
    assert patch is not None
    moved = PlannedFile("a", FileState(b"top\n" + old), FileState(b"top\n" + new))
    with pytest.raises(OwnBug, match="offset 1 line"):
        apply_with_git([patch], Plan("apply", (moved,)))


def test_no_git(
    patches: list[Patch], plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitMissing, match="not installed") as caught:
        apply_with_git(patches, plan)
    assert isinstance(caught.value, EnvironmentProblem)
    assert caught.value.hint


def test_importing_needs_neither_git_nor_gitpython() -> None:
    code = (
        "import sys; sys.modules['git'] = None\n"
        "import patchkit.git_engine as engine, patchkit.plan\n"
        "try: engine._git_module()\n"
        "except engine.GitMissing as error: print('missing')\n"
        "import os; assert 'GIT_PYTHON_REFRESH' not in os.environ\n"
    )
    root = Path(git_engine.__file__).parents[1]
    for path in ("/nonexistent", os.environ["PATH"]):
        said = subprocess.run(
            [sys.executable, "-c", code],
            env={"PATH": path, "PYTHONPATH": str(root)},
            capture_output=True,
            check=True,
        )
        assert said.stdout == b"missing\n"
