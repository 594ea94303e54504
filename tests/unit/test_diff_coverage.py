"""Coverage measured from diffs; the expected lines come from git and from the files."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_git import diffs

from patchkit.diff_coverage import FileCoverage, measure
from patchkit.diff_model import Patch
from patchkit.file_state import FileState, MemorySource
from patchkit.parse import parse_patch
from patchkit.plan import make_plan
from patchkit.plan_types import Plan

BASE = b"import os\n\n\ndef f(x):\n    return x\n\n\ndef g():\n    return os\n"
FIRST = BASE.replace(b"import os\n", b"import os\nimport re  # 1\n")
SECOND = (
    b"# a remark 2\nimport os\nimport re  # 1\n\n\ndef f(x):\n    y = 1  # 2\n"
    b"    return x\n\n\ndef g():\n    return re  # 2\n"
)
NEW = b'"""New."""\n\na = 1\nb = (\n    2\n)\n'


def planned(folder: Path, *trees: dict[str, bytes]) -> tuple[Plan, list[Patch]]:
    """The plan of the patches that git writes from each tree to the next."""
    states = [{path: FileState(data) for path, data in tree.items()} for tree in trees]
    patches = []
    for number, data in enumerate(diffs(folder, states), 1):
        patch = parse_patch(data, f"{number}.patch").patch
        assert patch is not None
        patches.append(patch)
    return make_plan(patches, MemorySource(states[0]), policy="exact"), patches


@pytest.fixture
def case(tmp_path: Path) -> tuple[Plan, list[Patch]]:
    """Two patches of one file, the second of a new file and of a text too."""
    return planned(
        tmp_path,
        {"m.py": BASE, "notes.txt": b"a\n"},
        {"m.py": FIRST, "notes.txt": b"a\n"},
        {"m.py": SECOND, "new.py": NEW, "notes.txt": b"b\n"},
    )


def test_every_line_ran(case: tuple[Plan, list[Patch]]) -> None:
    plan, _ = case
    lines = {
        "m.py": (frozenset({2, 3, 6, 7, 8, 11, 12}), frozenset()),
        "new.py": (frozenset({3, 4}), frozenset()),
    }
    assert measure(plan, lines) == [
        # Lines 1, 3, 7 and 12 of the result are marked; a remark is not executable.
        FileCoverage("m.py", added=4, executable=3, missing=()),
        FileCoverage("new.py", added=6, executable=2, missing=()),
    ]


def test_lines_that_did_not_run(case: tuple[Plan, list[Patch]]) -> None:
    plan, patches = case
    lines = {
        # Line 8 did not run either, and no patch added it.
        "m.py": (frozenset({2, 3, 6, 11}), frozenset({7, 8, 12})),
        "new.py": (frozenset({3}), frozenset({4})),
    }
    first, second = measure(plan, lines)
    assert [number for _, number in first.missing] == [7, 12]
    assert [number for _, number in second.missing] == [4]
    # The lines of the patch are those where its text has them.
    text = patches[1].data.split(b"\n")
    wanted = [b"+    y = 1  # 2", b"+    return re  # 2"]
    assert [origin for origin, _ in first.missing] == [
        ("2.patch", text.index(line) + 1) for line in wanted
    ]


def test_a_file_that_was_never_imported(case: tuple[Plan, list[Patch]]) -> None:
    plan, _ = case
    (_, new) = measure(plan, {"m.py": (frozenset({3, 7, 12}), frozenset())})
    assert new.path == "new.py"
    assert new.executable == len(new.missing) == 6


def test_a_line_that_is_told_not_to_be_measured(tmp_path: Path) -> None:
    plan, _ = planned(
        tmp_path, {"m.py": BASE}, {"m.py": BASE + b"h = 1  # pragma: no cover\n"}
    )
    # coverage.py leaves such a line out of both sets.
    (file,) = measure(plan, {"m.py": (frozenset({1, 4, 5, 8, 9}), frozenset())})
    assert (file.added, file.executable, len(file.missing)) == (1, 1, 1)


def test_only_the_lines_of_the_patches_asked_for(
    case: tuple[Plan, list[Patch]],
) -> None:
    plan, patches = case
    lines = {
        "m.py": (frozenset({2, 6, 8, 11, 12}), frozenset({3, 7})),
        "new.py": (frozenset({3, 4}), frozenset()),
    }
    # Line 3 is the first's, lines 7 and 12 are the second's.
    (first,) = measure(plan, lines, {patches[0].name})
    assert (first.path, first.added, first.executable) == ("m.py", 1, 1)
    assert [number for _, number in first.missing] == [3]
    second, new = measure(plan, lines, {patches[1].name})
    assert (second.added, second.executable) == (3, 2)
    assert [number for _, number in second.missing] == [7]
    assert (new.path, new.added) == ("new.py", 6)
