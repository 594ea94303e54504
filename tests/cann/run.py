#!/usr/bin/env python3
"""Run the tests of tests/cann/on_npu, or a program, on the simulated CANN runtime.

usage: tests/cann/run.py [--torch-npu VERSION] [PYTEST ARGUMENT …]
       tests/cann/run.py [--torch-npu VERSION] --program FILE.py [ARGUMENT …]

The environment with torch and torch_npu is made on first use: some GB and minutes.
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
from patchkit.releases import load_releases  # noqa: E402
from patchkit.upstream_env import npu_python  # noqa: E402

# torch_npu's own texts have invalid escapes.
_QUIET = ("-W", "ignore:invalid escape sequence:DeprecationWarning")
# The release whose torch each torch_npu goes with.
RELEASES = {"2.11.0.post3": "0.25", "2.13.0": "0.30"}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, make the environment, become the process asked for."""
    parser = argparse.ArgumentParser(
        prog="tests/cann/run.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit: pytest's or the program's own; 3 the environment cannot be made",
    )
    parser.add_argument("--torch-npu", choices=RELEASES, default="2.11.0.post3")
    parser.add_argument("--program", action="store_true")
    options, words = parser.parse_known_args(argv)
    release = load_releases().release[RELEASES[options.torch_npu]]
    python = str(npu_python(release, options.torch_npu))
    kind = ["-m", "simulated"] if options.program else ["-m", "pytest", "-q", *_QUIET]
    if not options.program and not any(word.startswith(str(HERE)) for word in words):
        words = [*words, str(HERE / "on_npu")]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "TASK_QUEUE_ENABLE": "0"}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    sys.stdout.flush()
    os.execve(python, [python, *kind, *words], environment)


if __name__ == "__main__":
    sys.exit(run_main(main))
