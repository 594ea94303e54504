"""Each prefix of the Ascend series: its modules import, and it serves or says why not.

On the simulated CANN runtime, in one tree that gets one patch after the other.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchkit.commit import commit_to_tree
from patchkit.errors import EnvironmentProblem
from patchkit.npu_tests import TORCH_NPU
from patchkit.plan import make_plan
from patchkit.releases import PROJECT, load_releases
from patchkit.series import load_series
from patchkit.source_tree import make_tree
from patchkit.tree_source import TreeSource
from patchkit.upstream_env import npu_python, simulated_npu_environment

RELEASE = load_releases().find("0.25")
SERIES = load_series(RELEASE, "ascend").patches
BELOW = len(load_series(RELEASE).patches)
PREFIXES = [Path(patch.name).stem for patch in SERIES[BELOW:]]
# The first whose platform is chosen, the first that can serve; what those between say.
CHOSEN_FROM = "0008-npu-platform-choice"
SERVES_FROM = "0011-npu-attention"
REFUSAL = "There is no attention backend for npu yet."
PROGRAM = Path(__file__).with_name("npu_prefix_program.py")

# Making the environment the first time takes minutes.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def results(
    need: Callable[[bool, str], None], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """By the name of the last patch."""
    try:
        python = npu_python(RELEASE, TORCH_NPU)
    except EnvironmentProblem as error:
        need(False, str(error))
    folder = tmp_path_factory.mktemp("prefixes")
    tree = folder / "tree"
    make_tree(RELEASE, tree, only="vllm/")
    cann = PROJECT / "tests" / "cann"
    engine = PROJECT / "tests" / "npu" / "engine"
    environment = {
        # The tree too: vLLM looks at a model in a process of its own, unless a cache
        # of an earlier run says what it would find.
        **simulated_npu_environment(cann / "in_children", cann, engine, tree),
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
    }
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [str(python), str(PROGRAM), str(tree), str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            bufsize=1,
        ) as program,
    ):
        assert program.stdin and program.stdout
        for number, name in enumerate(PREFIXES, BELOW + 1):
            patches = SERIES[:number]
            plan = make_plan(patches, TreeSource(tree), policy="exact")
            commit_to_tree(plan, tree)
            program.stdin.write(" ".join([name, *added_modules(number)]) + "\n")
            # Before the tree changes under it.
            while (line := program.stdout.readline()) and line != "done\n":
                pass
        program.stdin.close()
    files = {name: folder / f"{name}.json" for name in PREFIXES}
    missing = [name for name, file in files.items() if not file.is_file()]
    assert not missing, log.read_text()[-4000:]
    return {name: json.loads(file.read_text()) for name, file in files.items()}


def added_modules(number: int) -> list[str]:
    """The Python modules that the Ascend patches among the first ``number`` add."""
    return [
        change.path.removesuffix(".py").replace("/", ".")
        for patch in SERIES[BELOW:number]
        for change in patch.files
        if change.old_path is None and change.path.endswith(".py")
    ]


def test_the_series_adds_modules() -> None:
    """Else nothing would be imported below."""
    files = [(PROJECT / patch.name).read_bytes() for patch in SERIES[BELOW:]]
    new = sum(text.count(b"\nnew file mode") for text in files)
    assert len(added_modules(len(SERIES))) == new > 0
    assert "vllm.platforms.npu" in added_modules(BELOW + 1)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_can_be_used(results: dict[str, Any], prefix: str) -> None:
    found = results[prefix]
    if PREFIXES.index(prefix) < PREFIXES.index(CHOSEN_FROM):
        # As without the series; its modules import.
        assert found["platform"] != "NPUPlatform"
        return
    assert found["platform"] == "NPUPlatform"
    if PREFIXES.index(prefix) < PREFIXES.index(SERVES_FROM):
        assert REFUSAL in found["error"]
    else:
        assert "tokens" in found, found
