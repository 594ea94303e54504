#!/usr/bin/env python3
"""Make a patched source tree of a release, in build/."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK
from patchkit.releases import PROJECT, load_releases
from patchkit.source_tree import make_tree


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, make the tree, print where it is."""
    parser = argparse.ArgumentParser(
        prog="tools/tree.py",
        description=__doc__,
        epilog="exit: 0 the tree is there; 1 refused; 2 wrong arguments or no source",
    )
    parser.add_argument("--version", required=True, metavar="V", help="0.25, 0.25.1 …")
    parser.add_argument("--flavour", default="capture", help="capture or ascend")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="default: build/vllm-VERSION-FLAVOUR"
    )
    parser.add_argument(
        "--unpatched", action="store_true", help="the pinned source as it is"
    )
    parser.add_argument(
        "--offline", action="store_true", help="use the cache alone, download nothing"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    release, version = load_releases().find_version(options.version)
    kind = "unpatched" if options.unpatched else options.flavour
    target = options.out or PROJECT / "build" / f"vllm-{version}-{kind}"
    result = make_tree(
        release,
        target,
        version=version,
        flavour=options.flavour,
        offline=options.offline,
        patched=not options.unpatched,
    )
    if options.format == "json":
        entry = {**vars(result), "path": str(result.path)}
        print(json.dumps(entry, indent=2))
    else:
        what = "made" if result.made else "is there already"
        print(f"{result.path}: vLLM {result.version}, {result.patches} patches; {what}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(run_main(main))
