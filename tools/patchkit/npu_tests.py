"""Runs ``tests/npu``: vLLM with the Ascend series on the simulated CANN runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.cache import cache_folder
from patchkit.covered_run import CoveredRun, run_covered, tree_environment
from patchkit.errors import Refused, UsageError
from patchkit.plan import make_plan
from patchkit.releases import PROJECT, Release
from patchkit.series import load_series
from patchkit.source_tree import make_tree
from patchkit.tree_source import TreeSource
from patchkit.upstream_env import npu_python, simulated_npu_environment

# The one that the releases' torch is for.
TORCH_NPU = "2.11.0.post3"
FLAVOUR = "ascend"
TESTS = PROJECT / "tests" / "npu"
_SIMULATED = PROJECT / "tests" / "cann"
# They run no line of the series that others do not, and tracing slows them most: the
# simulated runtime is Python. `make npu` runs them.
UNTRACED = (
    "arrivals",
    "attention_groups",
    "graph_modes",
    "matrix",
    "tensor_parallel",
    "two_engines",
    "updates_compared",
)
# torch_npu's own texts have invalid escapes.
_QUIET = ("-W", "ignore:invalid escape sequence:DeprecationWarning")


@dataclass(frozen=True)
class NPUTests:
    """The interpreter and the environment of a run, on a tree."""

    python: Path
    tree: Path
    environment: dict[str, str]

    @staticmethod
    def words(arguments: Sequence[str] = ()) -> list[str]:
        """pytest's arguments: all of the tests, unless a path is among them."""
        named = any(Path(word.partition("::")[0]).exists() for word in arguments)
        return ["-q", *_QUIET, *arguments, *([] if named else [str(TESTS)])]


def prepare_npu_tests(
    release: Release, version: str, tree: Path | None, *, simulated: bool = True
) -> NPUTests:
    """Make what the tests run in, as far as it is missing.

    ``tree`` is a patched tree, as it lies there; None: the one of the series, kept per
    user. Not ``simulated``: on the CANN and the NPU of this machine. Raises UsageError
    when there is no Ascend platform in the tree.
    """
    if tree is None:
        tree = cache_folder("npu-trees") / version
        make_tree(release, tree, version=version, flavour=FLAVOUR, only="vllm/")
    elif not (tree / "vllm" / "platforms" / "npu.py").is_file():
        raise UsageError(f"no vLLM with the Ascend series: {tree}")
    tree = tree.resolve()
    if simulated:
        environment = simulated_npu_environment(
            _SIMULATED / "in_children", _SIMULATED, tree
        )
    else:
        environment = tree_environment(tree)
    return NPUTests(npu_python(release, TORCH_NPU), tree, environment)


def run_npu_tests(
    release: Release,
    version: str,
    folder: Path,
    *,
    tree: Path | None = None,
) -> CoveredRun:
    """Run the tests that are traced under coverage, their output passed on as it comes.

    Raises Refused when a file of the tree is not the series' own: its lines would not
    be those of the patches.
    """
    prepared = prepare_npu_tests(release, version, tree)
    series = load_series(release, FLAVOUR)
    source = TreeSource(prepared.tree)
    if make_plan(series.patches, source, policy="exact").state != "applied":
        raise Refused(
            f"{prepared.tree}: a patched file differs from the series",
            hint="make refresh writes what was changed into the series",
        )
    untraced = [f"--ignore={TESTS}/engine/test_{name}.py" for name in UNTRACED]
    return run_covered(
        prepared.python,
        prepared.tree,
        series.paths,
        prepared.words(untraced),
        folder,
        environment=prepared.environment,
        children=True,
        show=True,
    )
