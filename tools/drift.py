#!/usr/bin/env python3
"""How each hunk of a release's series fits another release, or any tree."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.drift_report import drift_json, drift_text
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.find_drift import drift_to_tree, drift_to_version
from patchkit.releases import load_releases

EPILOG = """\
exact     stands where it is declared
moved     stands at another line, its context unchanged
merged    its context changed, and git's 3-way merge puts it there
renamed   the file has another name there, by git's rename detection
upstream  the source has the change already
conflict  its context changed, and git needs a person
gone      the file is there under no name

For all but the first two: the lines on both sides, and the changes between the two
sources that touch the hunk.

exit: 0 every patch fits as it is; 1 one does not; 2 wrong arguments or no source
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, compare, print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tools/drift.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="V", help="a release of the kit"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", metavar="W", help="any version that the package index has"
    )
    where.add_argument("--tree", type=Path, metavar="DIR", help="any source tree")
    parser.add_argument("--flavour", default="capture", help="capture or ascend")
    parser.add_argument(
        "--offline", action="store_true", help="use the cache alone, download nothing"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    releases = load_releases()
    if options.tree is not None:
        drift = drift_to_tree(
            releases, options.source, options.tree, options.flavour, options.offline
        )
    else:
        drift = drift_to_version(
            releases, options.source, options.to, options.flavour, options.offline
        )
    if options.format == "json":
        print(json.dumps(drift_json(drift), indent=2))
    else:
        print(drift_text(drift))
    fits = all(patch.as_it_is for patch in drift.patches)
    return EXIT_OK if fits else EXIT_REFUSED


if __name__ == "__main__":
    sys.exit(run_main(main))
