#!/usr/bin/env python3
"""Carry a release's series to another release; again after a conflict, to go on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.findings import has_errors
from patchkit.port import PortResult, port
from patchkit.port_report import port_rows
from patchkit.releases import load_releases
from patchkit.report import outcome, render
from patchkit.verify import verify_releases

EPILOG = """\
A release that the kit does not have gets its table in releases.toml, with the sdist
digest that the package index lists. Nothing outside of the work tree is written
before every patch is settled.

After a conflict: resolve it in the work tree, git add, and type the same command
again. To leave a patch out: git cherry-pick --skip, and the same.

exit: 0 written and verified; 1 stopped at a conflict, or verified with findings; 2
wrong arguments or no source
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, port, verify; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tools/port.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="V", help="a release of the kit"
    )
    parser.add_argument(
        "--to", required=True, metavar="W", help="any release on the package index"
    )
    parser.add_argument("--flavour", default="capture", help="capture or ascend")
    parser.add_argument(
        "--tree", type=Path, metavar="DIR", help="default: where make tree puts it"
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="leave patches with conflicts out, and say which",
    )
    parser.add_argument(
        "--offline", action="store_true", help="use the cache alone, download nothing"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    result = port(
        load_releases(),
        options.source,
        options.to,
        flavour=options.flavour,
        tree=options.tree,
        offline=options.offline,
        keep_going=options.keep_going,
    )
    _print(result, options.format)
    if result.refresh is None:
        return EXIT_REFUSED
    report = verify_releases([result.state.target], offline=options.offline)
    if options.format == "text":
        print(
            render(report.findings, "text", summary={"line": outcome(report.findings)})
        )
    return EXIT_REFUSED if has_errors(report.findings) else EXIT_OK


def _print(result: PortResult, form: str) -> None:
    if form == "json":
        files = result.refresh.written if result.refresh else ()
        entry = {"tree": str(result.tree), **asdict(result.state), "files": files}
        print(json.dumps(entry, indent=2))
    else:
        print("\n".join(port_rows(result)))


if __name__ == "__main__":
    sys.exit(run_main(main))
