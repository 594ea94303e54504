"""tests/npu/on_hardware.sh: what it asks for, and what it keeps of a run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from patchkit.errors import EnvironmentProblem
from patchkit.npu_tests import NPUTests
from patchkit.releases import PROJECT

NPU = PROJECT / "tests" / "npu"
TESTS = """
import os, pytest

def test_passes(): pass

def test_fails():
    raise ValueError("not found: /home/somebody/site/file.py")

@pytest.mark.skip(reason="looks into a simulated machine")
def test_is_left_out(): pass

def test_dies(): os._exit(3)

def test_never_runs(): pass
"""


@pytest.fixture(scope="module")
def on_hardware() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hardware", NPU / "on_hardware.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "says"),
    [([], "which release?"), (["0.25"], "no Ascend NPU here")],
)
def test_says_what_is_missing(words: list[str], says: str) -> None:
    command = ["sh", str(NPU / "on_hardware.sh"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_no_device_is_one_line(on_hardware: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libascendcl.so is missing')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(EnvironmentProblem, match=r"finds no NPU: libascendcl\.so"):
        on_hardware.device_facts(Path(sys.executable), environment)


def test_result_of_a_run_that_dies(on_hardware: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(TESTS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    tests = NPUTests(Path(sys.executable), tmp_path, environment)
    run = on_hardware.run_tests(tests, [str(file), "-p", "no:cacheprovider"])
    assert not run.is_right
    facts = {"device": "Ascend910B1", "devices": 8}
    result = on_hardware.result_of("0.25.1", "sha256:0", facts, run)
    assert result["counts"] == {
        "passed": 1,
        "failed": 1,
        "skipped": 1,
        "died": 1,
        "not run": 1,
    }
    assert [test.rpartition("::")[2] for test in result["passed"]] == ["test_passes"]
    said = {k.rpartition("::")[2]: v for k, v in result["not_passed"].items()}
    assert said["test_fails"] == "failed: ValueError: not found: …/file.py"
    assert said["test_is_left_out"] == "skipped: looks into a simulated machine"
    assert on_hardware.file_name("0.25", facts) == "v0.25-ascend910b1-npu.json"


def test_a_run_in_which_nothing_passes_is_not_right(on_hardware: ModuleType) -> None:
    assert not on_hardware.TestRun({}, 0.0).is_right
    assert not on_hardware.TestRun({"a": ("skipped", "")}, 0.0).is_right
    assert on_hardware.TestRun({"a": ("passed", "")}, 0.0).is_right
