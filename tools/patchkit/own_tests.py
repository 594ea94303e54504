"""Upstream's own tests, run on an unpatched and on a patched tree, and compared."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.covered_run import tree_environment
from patchkit.errors import EnvironmentProblem

# What the series touches, of upstream's tests: graphs, and the options' classes.
FOLDERS = ("tests/v1/cudagraph", "tests/config")
# By flavour. The ascend series touches more: platforms, compilation, sampling, workers.
# Of those, the files in which a test passes without a GPU and a hub.
TOUCHED = {
    "capture": FOLDERS,
    "ascend": (
        *FOLDERS,
        "tests/compile/test_config.py",
        "tests/compile/test_graph_partition.py",
        "tests/cuda",
        "tests/model_executor/test_enabled_custom_ops.py",
        "tests/test_attention_backend_registry.py",
        "tests/test_config.py",
        "tests/test_envs.py",
        "tests/utils_/test_torch_utils.py",
        "tests/v1/attention/test_attention_backends_selection.py",
        "tests/v1/attention/test_attention_splitting.py",
        "tests/v1/attention/test_batch_reordering.py",
        "tests/v1/sample/test_topk_topp_sampler.py",
        "tests/v1/worker/test_gpu_profiler.py",
        "tests/v1/worker/test_gpu_worker.py",
        "tests/v1/worker/test_mamba_utils.py",
        "tests/v1/worker/test_mrope_prompt_embeds.py",
    ),
}
# Wanted by upstream's tests/conftest.py beyond what vLLM itself wants.
TOOLS = ("tblib>=3",)
TEST_SECONDS = 300
RUN_SECONDS = 3600
_PLUGIN = Path(__file__).parent / "in_release" / "outcome_lines.py"
# Settings of the user's that would reach upstream's code, or pytest.
_SETTINGS = ("VLLM_", "HF_", "TRANSFORMERS_", "XDG_", "PYTEST_")
_PROVISIONAL = ("not run", "died")
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")


@dataclass(frozen=True)
class Outcome:
    """How a test ended, in one word or two, and why, if it did not pass.

    Words: passed, failed, error (in a fixture), skipped, xfailed, xpassed, not
    collected (with a module's or class's name for a test's), died, not run.
    """

    word: str
    reason: str = ""

    def __str__(self) -> str:
        first = self.reason.partition("\n")[0]
        return f"{self.word} ({first})" if first else self.word


ABSENT = Outcome("absent")


@dataclass(frozen=True)
class OwnRun:
    """One run: the outcome of each test by its id, and the last lines of output."""

    outcomes: Mapping[str, Outcome]
    seconds: float
    tail: str

    @property
    def counts(self) -> str:
        """How many tests ended how; four words are there even where none did."""
        count = dict.fromkeys(("passed", "failed", "skipped", "not collected"), 0)
        for outcome in self.outcomes.values():
            count[outcome.word] = count.get(outcome.word, 0) + 1
        return ", ".join(f"{number} {word}" for word, number in count.items())

    @property
    def reasons(self) -> list[str]:
        """Why tests did not pass, the most frequent reason first."""
        said = Counter(str(o) for o in self.outcomes.values() if o.reason)
        return [f"{number} {what}" for what, number in said.most_common()]


@dataclass(frozen=True)
class Difference:
    """A test that ends otherwise in the patched tree, or for another reason."""

    test: str
    unpatched: Outcome
    patched: Outcome

    def __str__(self) -> str:
        if self.unpatched.word == self.patched.word:
            return (
                f"{self.test}: {self.patched.word} in both, for another reason\n"
                f"  unpatched: {self.unpatched.reason}\n"
                f"  patched: {self.patched.reason}"
            )
        return f"{self.test}: unpatched {self.unpatched}, patched {self.patched}"


def run_own_tests(
    python: Path,
    tree: Path,
    folder: Path,
    *,
    paths: Sequence[str] = FOLDERS,
    test_seconds: float = TEST_SECONDS,
    run_seconds: float = RUN_SECONDS,
) -> OwnRun:
    """Run ``paths`` of ``tree`` under ``python``; ``folder`` is for what that writes.

    Whatever ends the run, the outcomes up to there are returned.
    """
    folder.mkdir()
    lines, output = folder / "outcomes", folder / "output"
    lines.touch()
    began = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(
            [
                *(str(python), "-m", "pytest", "-q", "--tb=short", "--no-header"),
                *("-p", "no:cacheprovider", "-p", _PLUGIN.stem),
                *("--continue-on-collection-errors", f"--timeout={test_seconds}"),
                *("-c", "pyproject.toml", "--rootdir", str(tree), *paths),
            ],
            cwd=tree,
            env=_environment(tree, folder, lines),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(run_seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(process)
    seconds = time.monotonic() - began
    text = output.read_text("utf-8", "replace").strip()
    return OwnRun(
        _read(lines, tree, folder), seconds, "\n".join(text.splitlines()[-20:])
    )


def compare_runs(unpatched: OwnRun, patched: OwnRun) -> list[Difference]:
    """Every test whose outcome differs, its reason included, in the order of running.

    Reasons count because many tests can only fail where no hub and no GPU is in
    reach, and a patch that broke them would not change the word.
    """
    before, after = unpatched.outcomes, patched.outcomes
    return [
        Difference(test, before.get(test, ABSENT), after.get(test, ABSENT))
        for test in dict.fromkeys([*before, *after])
        if before.get(test) != after.get(test)
    ]


def require_passes(run: OwnRun, paths: Sequence[str] = FOLDERS) -> None:
    """Raise EnvironmentProblem unless a test of each of ``paths`` passed in ``run``.

    Two runs in which nothing passes are alike, and say nothing.
    """
    for path in paths:
        words = [o.word for t, o in run.outcomes.items() if _is_below(t, path)]
        if "passed" not in words:
            why = run.reasons[0] if run.reasons else run.tail.rpartition("\n")[2]
            raise EnvironmentProblem(
                f"of upstream's {path}, none of {len(words)} tests passes in the "
                f"unpatched tree: {why}"
            )


def _is_below(test: str, path: str) -> bool:
    plain = path.rstrip("/")
    return test.startswith((f"{plain}/", f"{plain}::", f"{plain}[")) or test == plain


def _environment(tree: Path, folder: Path, lines: Path) -> dict[str, str]:
    """No GPU, no network, and no file or setting of the user's."""
    inherited = {
        name: value
        for name, value in tree_environment(tree).items()
        if not name.startswith(_SETTINGS)
    }
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join([str(tree), str(_PLUGIN.parent)]),
        # The plugin's: it cannot be imported here, where pytest may be missing.
        "PATCHKIT_OUTCOMES": str(lines),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "VLLM_NO_USAGE_STATS": "1",
    }


def _read(lines: Path, tree: Path, folder: Path) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for line in lines.read_text("utf-8").splitlines():
        test, word, reason = json.loads(line)
        # Where it stands in memory or on disk is no difference.
        for place in (tree, folder):
            reason = reason.replace(str(place), "")
        now = Outcome(word, _ADDRESS.sub("0x", reason))
        before = found.get(test)
        if before and before != now and before.word not in _PROVISIONAL:
            # A fixture that breaks after the test does not hide how that ended.
            now = Outcome(
                f"{before.word}, then {word}", f"{before.reason}\n{now.reason}".strip()
            )
        found[test] = now
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the run and the processes that its tests left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
