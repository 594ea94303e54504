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

from patchkit.command_line import run as run_main  # noqa: E402
from patchkit.npu_tests import prepare_npu_tests  # noqa: E402
from patchkit.releases import load_releases  # noqa: E402


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
    tests = prepare_npu_tests(release, version, options.tree)
    command = [str(tests.python), "-m", "pytest", *tests.words(words)]
    sys.stdout.flush()
    os.execve(tests.python, command, tests.environment)


if __name__ == "__main__":
    sys.exit(run_main(main))
