#!/usr/bin/env python3
"""Smoke-test a patched image: its files, its options, and vLLM's engine inside."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.image_build import default_reference
from patchkit.npu_tests import FLAVOUR as ASCEND
from patchkit.releases import load_releases
from patchkit.smoke import smoke_test


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, run every check, print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tools/smoke.py",
        description=__doc__,
        epilog="exit: 0 every check holds; 1 one does not; 2 no engine, no such image",
    )
    parser.add_argument("--version", required=True, metavar="V", help="0.25, v0.25 …")
    parser.add_argument("--flavour", default="capture", help="capture or ascend")
    parser.add_argument("--tag", default="", help="the image; default: as make image")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    release = load_releases().find(options.version)
    # Of the flavour ascend only an image on the simulated runtime can be run here.
    default = default_reference(
        release, options.flavour, simulated=options.flavour == ASCEND
    )
    reference = options.tag or default
    smoke = smoke_test(release, reference, options.flavour)
    if options.format == "json":
        checks = [vars(check) for check in smoke.checks]
        result = {**vars(smoke), "checks": checks}
        print(json.dumps({**result, "passed": smoke.passed}, indent=2))
    else:
        for check in smoke.checks:
            print(f"{'pass' if check.passed else 'FAIL'}  {check.name}: {check.seen}")
        print(smoke.not_shown)
        good = sum(check.passed for check in smoke.checks)
        print(f"{reference}: {good} of {len(smoke.checks)} checks passed")
    return EXIT_OK if smoke.passed else EXIT_REFUSED


if __name__ == "__main__":
    sys.exit(run_main(main))
