"""pytest under coverage, on a tree of one small module, with this interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchkit.covered_run import CoveredRun, run_covered, tree_environment
from patchkit.errors import EnvironmentProblem

MODULE = """\
def here():
    return 1


def in_child():
    return 2


def nowhere():
    return 3
"""
TESTS = """\
import subprocess, sys
import pytest
import other
from pkg import m

def test_here():
    assert m.here() == 1

def test_in_child():
    text = "import os; from pkg import m; m.in_child(); os._exit(0)"
    subprocess.run([sys.executable, "-c", text], check=True)

@pytest.mark.skip(reason="no device")
def test_left_out():
    pass
"""


def run(folder: Path, tests: str = TESTS, **options: bool) -> CoveredRun:
    tree = folder / "tree"
    (tree / "pkg").mkdir(parents=True)
    (tree / "pkg" / "m.py").write_text(MODULE)
    (tree / "other.py").write_text("a = 1\n")
    test = folder / "test_m.py"
    test.write_text(tests)
    words = ["-q", "-rs", "-p", "no:cacheprovider", "--rootdir", str(folder), str(test)]
    return run_covered(
        Path(sys.executable),
        tree,
        ["pkg/m.py", "pkg/never.py"],
        words,
        folder,
        environment=tree_environment(tree),
        **options,
    )


@pytest.mark.parametrize("children", [False, True])
def test_lines_of_child_processes_count_where_they_are_wanted(
    tmp_path: Path, children: bool
) -> None:
    done = run(tmp_path, children=children)
    assert (done.status, done.passed) == (0, 2), done.output
    ran = {1, 2, 5, 6, 9} if children else {1, 2, 5, 9}
    wanted = (frozenset(ran), frozenset({2, 6, 10} - ran))
    # Nothing of files that were not asked for.
    assert done.lines == {"pkg/m.py": wanted}
    (left,) = done.left_out
    assert "no device" in left


def test_output_is_passed_on_where_it_is_wanted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = run(tmp_path / "quiet")
    assert capfd.readouterr().out == ""
    done = run(tmp_path / "shown", show=True)
    assert capfd.readouterr().out == done.output
    assert "2 passed" in done.output


def test_a_failing_test_is_told_by_the_status(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS.replace("== 1", "== 2"))
    assert (done.status, done.passed) == (1, 1)


def test_a_run_that_measures_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"gave no coverage(.|\n)*1 passed"):
        run(tmp_path, "def test_a():\n    pass\n")
