#!/usr/bin/env python3
"""Turn raw results of tests/gpu/on_device.py into the files of evidence/.

Each check's outcome is written beside the figures that it comes from.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tools"))

from patchkit.command_line import run as run_main  # noqa: E402
from patchkit.errors import EXIT_OK, EXIT_REFUSED  # noqa: E402
from patchkit.gpu_collect import collect  # noqa: E402
from patchkit.gpu_results import all_checks, result_name, result_text  # noqa: E402


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, collect all files, then write; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tests/gpu/collect.py",
        description=__doc__,
        epilog="exit: 0 every check holds; 1 written, and some do not; or refused with "
        "nothing written, since a run failed or is incomplete; 2 no such file",
    )
    parser.add_argument("--out", type=Path, default=PROJECT / "evidence")
    parser.add_argument("raw", nargs="+", type=Path, metavar="RAW.json")
    options = parser.parse_args(argv)
    results = [result for file in options.raw for result in collect(file)]
    options.out.mkdir(parents=True, exist_ok=True)
    code = EXIT_OK
    for result in results:
        name = result_name(result)
        (options.out / name).write_text(result_text(result))
        checks = all_checks(result)
        broken = [check for check, holds in checks.items() if not holds]
        print(f"{name}: {len(checks) - len(broken)} of {len(checks)} checks hold")
        for check in broken:
            print(f"{name}: does not hold: {check}")
            code = EXIT_REFUSED
    return code


if __name__ == "__main__":
    sys.exit(run_main(main))
