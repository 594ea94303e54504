"""Run tests/npu: vLLM with the Ascend series, on the simulated CANN runtime.

The tree of the release with its patches and the environment are made on first use.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))

from patchkit.cache import cache_folder  # noqa: E402
from patchkit.command_line import run as run_main  # noqa: E402
from patchkit.errors import UsageError  # noqa: E402
from patchkit.releases import load_releases  # noqa: E402
from patchkit.source_tree import make_tree  # noqa: E402
from patchkit.upstream_env import npu_python, simulated_npu_environment  # noqa: E402

# The one that the releases' torch is for.
TORCH_NPU = "2.11.0.post3"


def main(argv: Sequence[str] | None = None) -> int:
    """Make tree and environment, become pytest in it."""
    parser = argparse.ArgumentParser(
        prog="tests/npu/run.py",
        description=__doc__,
        usage="%(prog)s --version V [PYTEST ARGUMENT …]",
        allow_abbrev=False,
        epilog="exit: pytest's own; 2 usage, or no environment",
    )
    parser.add_argument("--version", required=True, metavar="V", help="0.25, v0.25 …")
    parser.add_argument(
        "--tree",
        metavar="DIR",
        type=Path,
        help="a patched tree, as `make tree FLAVOUR=ascend` makes it, as it lies there "
        "(default: one made anew from the series, under the cache folder)",
    )
    options, words = parser.parse_known_args(argv)
    release, version = load_releases().find_version(options.version)
    tree = options.tree and options.tree.resolve()
    if tree is None:
        tree = cache_folder("npu-trees") / version
        make_tree(release, tree, version=version, flavour="ascend", only="vllm/")
    elif not (tree / "vllm" / "platforms" / "npu.py").is_file():
        raise UsageError(f"no vLLM with the Ascend series: {options.tree}")
    python = str(npu_python(release, TORCH_NPU))
    simulated = HERE.parent / "cann"
    environment = simulated_npu_environment(simulated / "in_children", simulated, tree)
    if not any(Path(word.partition("::")[0]).exists() for word in words):
        words = [*words, str(HERE)]
    quiet = "ignore:invalid escape sequence:DeprecationWarning"
    command = [python, "-m", "pytest", "-q", "-W", quiet, *words]
    sys.stdout.flush()
    os.execve(python, command, environment)


if __name__ == "__main__":
    sys.exit(run_main(main))
