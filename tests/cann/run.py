#!/usr/bin/env python3
"""Run the tests of tests/cann/on_npu, or a program, on the simulated CANN runtime.

The environment with torch and torch_npu is made on first use: some GB and minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
_KIT = HERE.parents[1] / ".venv" / "bin" / "python"
if __name__ == "__main__" and Path(sys.prefix) != _KIT.parents[1]:
    # Started by its name: the kit's libraries are in the kit's environment.
    if not _KIT.exists():
        sys.exit("tests/cann/run.py: no .venv yet; type: make venv")
    os.execv(_KIT, [str(_KIT), *sys.argv])
sys.path.insert(0, str(HERE.parents[1] / "tools"))

from patchkit.command_line import run as run_main  # noqa: E402
from patchkit.releases import load_releases  # noqa: E402
from patchkit.upstream_env import npu_python, simulated_npu_environment  # noqa: E402

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
        usage="%(prog)s [--torch-npu VERSION] [PYTEST ARGUMENT …]\n"
        "       %(prog)s [--torch-npu VERSION] --program FILE.py [ARGUMENT …]",
        allow_abbrev=False,
        epilog="exit: pytest's or the program's own; 2 usage, or no environment",
    )
    parser.add_argument(
        "--torch-npu", choices=RELEASES, default="2.11.0.post3", help="%(default)s"
    )
    parser.add_argument(
        "--program",
        nargs=argparse.REMAINDER,
        metavar=("FILE.py", "ARGUMENT"),
        help="run this file with the arguments that follow, instead of the tests",
    )
    options, words = parser.parse_known_args(argv)
    if options.program is not None:
        words = options.program
        if not words or not Path(words[0]).is_file():
            parser.error(f"--program needs a file: {words[0] if words else 'none'}")
    else:
        words = [str(Path(w).resolve()) if Path(w).exists() else w for w in words]
        for word in words:
            if word.endswith(".py") and not word.startswith(str(HERE)):
                parser.error(f"{word} is no test of the test bed; --program runs it")
    release = load_releases().release[RELEASES[options.torch_npu]]
    python = str(npu_python(release, options.torch_npu))
    runs = options.program is not None
    kind = ["-m", "simulated"] if runs else ["-m", "pytest", "-q", *_QUIET]
    if not runs and not any(word.startswith(str(HERE)) for word in words):
        words = [*words, str(HERE / "on_npu")]
    sys.stdout.flush()
    os.execve(python, [python, *kind, *words], simulated_npu_environment(HERE))


if __name__ == "__main__":
    sys.exit(run_main(main))
