"""What a patched tree does to upstream's tests is seen: on trees of a few small tests.

pytest runs them for real, under this interpreter; no vLLM is needed for that.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

import own_tests as command
from patchkit.command_line import run as run_main
from patchkit.errors import EnvironmentProblem
from patchkit.own_tests import (
    ABSENT,
    Difference,
    Outcome,
    OwnRun,
    compare_runs,
    require_passes,
    run_own_tests,
)

GRAPH = "tests/v1/cudagraph/test_graph.py"
OPTION = "tests/config/test_option.py"
FILES = {
    "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['slow_test']\n",
    "vllm/__init__.py": "import os\nFIELDS = ['mode']\n",
    GRAPH: """
import pytest
import vllm

def test_first():
    assert len(vllm.FIELDS) == 1

@pytest.mark.skipif(not hasattr(vllm, "cuda"), reason="needs a GPU")
def test_on_a_gpu():
    raise AssertionError

@pytest.mark.parametrize("field", vllm.FIELDS)
def test_field(field):
    assert field
""",
    OPTION: """
import os
import pytest
import vllm

@pytest.fixture
def loaned():
    yield
    assert not hasattr(vllm, "kept"), "kept for good"

def test_hub():
    raise OSError(f"no hub at {id(object()):#x} of {os.path.dirname(__file__)}")

def test_option(loaned):
    assert vllm.os is os
""",
    "tests/config/test_no_module.py": "import no_such_kernel\n",
}
NO_MODULE = Outcome(
    "not collected", "ModuleNotFoundError: No module named 'no_such_kernel'"
)


def run_in(tree: Path, **limits: float) -> OwnRun:
    """Upstream's tests in one of the small trees."""
    folder = tree.with_name(f"{tree.name}-run")
    return run_own_tests(Path(sys.executable), tree, folder, **limits)


@pytest.fixture(scope="module")
def unpatched(tmp_path_factory) -> Path:
    """A tree that no test changes."""
    tree = tmp_path_factory.mktemp("trees") / "unpatched"
    for path, text in FILES.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    return tree


@pytest.fixture(scope="module")
def before(unpatched) -> OwnRun:
    """Its outcomes."""
    return run_in(unpatched)


class Patched:
    """A copy of the tree, for a patch; ``before`` is what it is compared with."""

    def __init__(self, tree: Path, before: OwnRun) -> None:
        self.tree = tree
        self.before = before

    def patch(self, path: str, old: str, new: str) -> None:
        """Change one place."""
        file = self.tree / path
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))

    def differences(self, **limits: float) -> list[Difference]:
        """What the comparison finds."""
        return compare_runs(self.before, run_in(self.tree, **limits))


@pytest.fixture
def patched(unpatched, before, tmp_path) -> Patched:
    tree = tmp_path / "patched"
    shutil.copytree(unpatched, tree, ignore=shutil.ignore_patterns("__pycache__"))
    return Patched(tree, before)


def test_each_kind_of_outcome(before):
    reason = before.outcomes[f"{OPTION}::test_hub"].reason
    assert before.outcomes == {
        "tests/config/test_no_module.py": NO_MODULE,
        f"{GRAPH}::test_first": Outcome("passed"),
        f"{GRAPH}::test_on_a_gpu": Outcome("skipped", "needs a GPU"),
        f"{GRAPH}::test_field[mode]": Outcome("passed"),
        f"{OPTION}::test_hub": Outcome("failed", reason),
        f"{OPTION}::test_option": Outcome("passed"),
    }
    assert reason == "OSError: no hub at 0x of /tests/config"
    assert before.counts == "3 passed, 1 failed, 1 skipped, 1 not collected"
    require_passes(before)


def test_a_harmless_patch(patched):
    """Other addresses and another folder are no difference."""
    patched.patch("vllm/__init__.py", "import os", "import os, re")
    assert patched.differences() == []


def test_a_broken_test(patched):
    patched.patch("vllm/__init__.py", "import os\n", "os = None\n")
    (found,) = patched.differences()
    assert found.test == f"{OPTION}::test_option"
    assert (found.unpatched.word, found.patched.word) == ("passed", "failed")
    assert str(found).startswith(f"{found.test}: unpatched passed, patched failed (")


def test_a_field_more(patched):
    """A test of it is new, and a test that counts fields fails: both are said."""
    patched.patch("vllm/__init__.py", "'mode'", "'mode', 'more'")
    first, new = patched.differences()
    assert first.test == f"{GRAPH}::test_first"
    assert (first.unpatched.word, first.patched.word) == ("passed", "failed")
    assert new == Difference(f"{GRAPH}::test_field[more]", ABSENT, Outcome("passed"))


def test_failing_for_another_reason(patched):
    patched.patch(OPTION, "no hub", "no option")
    (found,) = patched.differences()
    assert (found.unpatched.word, found.patched.word) == ("failed", "failed")
    assert "no option at 0x" in str(found)


def test_a_test_that_is_no_longer_run(patched):
    patched.patch(GRAPH, "def test_first", "@pytest.mark.skip('off')\ndef test_first")
    assert patched.differences() == [
        Difference(f"{GRAPH}::test_first", Outcome("passed"), Outcome("skipped", "off"))
    ]


def test_a_module_that_no_longer_imports(patched):
    patched.patch(OPTION, "import vllm\n", "import vllm.gone\n")
    found = {each.test: each for each in patched.differences()}
    assert found[OPTION].unpatched is ABSENT
    assert found[OPTION].patched == Outcome(
        "not collected", "ModuleNotFoundError: No module named 'vllm.gone'"
    )
    assert found[f"{OPTION}::test_option"].patched is ABSENT
    assert found.keys() == {OPTION, f"{OPTION}::test_option", f"{OPTION}::test_hub"}


def test_a_fixture_that_breaks_after_its_test(patched):
    patched.patch("vllm/__init__.py", "import os", "import os; kept = 1")
    (found,) = patched.differences()
    assert found.test == f"{OPTION}::test_option"
    assert found.patched.word == "passed, then error"
    assert "kept for good" in found.patched.reason


def test_a_run_that_dies(patched):
    patched.patch(GRAPH, "    assert field", "    vllm.os._exit(1)")
    found = {each.test: each.patched.word for each in patched.differences()}
    assert found == {
        f"{GRAPH}::test_field[mode]": "died",
        f"{OPTION}::test_hub": "not run",
        f"{OPTION}::test_option": "not run",
    }


@pytest.mark.parametrize(
    ("limits", "word"),
    [({"test_seconds": 1}, "failed"), ({"run_seconds": 5}, "died")],
)
def test_a_test_that_hangs(patched, limits, word):
    patched.patch(OPTION, "    assert vllm.os is os", "    import time; time.sleep(60)")
    (found,) = patched.differences(**limits)
    assert (found.test, found.patched.word) == (f"{OPTION}::test_option", word)


def test_what_a_test_leaves_running(patched):
    """It is ended: a GPU or a port that it holds would be missed by the next run."""
    patched.patch(
        OPTION,
        "    assert vllm.os is os",
        "    import subprocess\n"
        "    process = subprocess.Popen(['sleep', '60'])\n"
        "    open('left', 'w').write(str(process.pid))",
    )
    assert patched.differences() == []
    state = Path("/proc", (patched.tree / "left").read_text(), "stat")
    deadline = time.monotonic() + 10
    while state.exists() and ") Z " not in state.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_tree_in_which_nothing_runs(patched):
    """The patched tree's fault is a difference in each test, not a missing part."""
    (patched.tree / "tests" / "conftest.py").write_text("import vllm.gone\n")
    found = patched.differences()
    assert len(found) == 6
    assert {each.patched for each in found} == {ABSENT}


@pytest.mark.parametrize("path", [GRAPH, OPTION])
def test_a_folder_in_which_nothing_passes(patched, path):
    (patched.tree / path).write_text("def test_it():\n    assert False\n")
    run = run_in(patched.tree)
    assert "passed" in {outcome.word for outcome in run.outcomes.values()}
    with pytest.raises(EnvironmentProblem, match=Path(path).parent.as_posix()):
        require_passes(run)


def test_settings_of_the_user(patched, monkeypatch):
    """None reaches the tests, so that every machine runs the same."""
    names = ("VLLM_USE_IT", "HF_TOKEN", "PYTEST_ADDOPTS")
    for name in names:
        monkeypatch.setenv(name, "--collect-only")
    (patched.tree / OPTION).write_text(
        "import os\ndef test_it():\n"
        f"    assert not {{*{names}}} & {{*os.environ}}\n"
        "    assert os.environ['HF_HUB_OFFLINE'] == '1'\n"
    )
    assert run_in(patched.tree).outcomes[f"{OPTION}::test_it"] == Outcome("passed")


@pytest.fixture
def releases(patched, unpatched, monkeypatch) -> dict[bool, Path]:
    """What the command takes for a release's trees, by whether they are patched."""
    trees = {True: patched.tree, False: unpatched}

    def make_tree(release, target, *, version, flavour, patched):
        assert version == release.versions[0]
        assert flavour in release.flavours
        shutil.copytree(trees[patched], target)

    monkeypatch.setattr(command, "make_tree", make_tree)
    monkeypatch.setattr(command, "upstream_python", lambda *_: Path(sys.executable))
    return trees


@pytest.mark.parametrize(
    ("edit", "code", "said"),
    [
        ("FIELDS += []", 0, "the same outcomes: 3 passed, 1 failed, 1 skipped, 1 not"),
        ("FIELDS += ['more']", 1, "test_field[more]: unpatched absent, patched passed"),
    ],
)
def test_exit_codes(releases, capsys, edit, code, said):
    with (releases[True] / "vllm" / "__init__.py").open("a") as file:
        file.write(edit)
    assert run_main(command.main, ["--version", "0.25"]) == code
    assert said in capsys.readouterr().out


def test_a_flavour_has_paths_of_its_own(monkeypatch):
    seen = []

    def compare(release, version, flavour, paths):
        seen.append((version, flavour, set(paths)))
        return True, "the same"

    monkeypatch.setattr(command, "_compare", compare)
    for words in ([], ["--flavour", "ascend"]):
        assert run_main(command.main, words) == 0
    assert [each[:2] for each in seen] == [
        ("0.22.1", "capture"),
        ("0.25.1", "capture"),
        ("0.33.0", "capture"),
        # Where there is such a series.
        ("0.22.1", "ascend"),
        ("0.25.1", "ascend"),
    ]
    # What the other touches as well.
    assert seen[1][2] < seen[4][2]


def test_an_environment_in_which_vllm_does_not_import(releases, patched, capsys):
    """Both trees are alike in that; the command does not take it for a result."""
    (patched.tree / "vllm" / "__init__.py").write_text("import gone\n")
    releases[False] = patched.tree
    assert run_main(command.main, ["--version", "0.25"]) == 2
    why = "none of 1 tests passes in the unpatched tree: 2 not collected"
    assert why in capsys.readouterr().err
