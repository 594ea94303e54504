#!/usr/bin/env python3
"""Make a release's work tree in build/: the pinned source, then one commit a patch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK
from patchkit.releases import Release, load_releases
from patchkit.source_tree import make_tree
from patchkit.work_tree import default_target, make_work_tree


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
        "--unpatched",
        action="store_true",
        help="the pinned source as it is, without git",
    )
    parser.add_argument(
        "--offline", action="store_true", help="use the cache alone, download nothing"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    release, version = load_releases().find_version(options.version)
    kind = "unpatched" if options.unpatched else options.flavour
    target = options.out or default_target(version, kind)
    entry: dict[str, object]
    if options.unpatched:
        entry = _make_plain(release, target, version, options.offline)
    else:
        tree = make_work_tree(
            release,
            target,
            version=version,
            flavour=options.flavour,
            offline=options.offline,
        )
        entry = {
            "path": str(tree.path),
            "version": version,
            "patches": len(tree.record.patches),
            "pinned": tree.record.base,
            "head": tree.record.head,
            "made": tree.made,
        }
    if options.format == "json":
        print(json.dumps(entry, indent=2))
    else:
        what = "made" if entry["made"] else "is there already"
        print(f"{target}: vLLM {version}, {entry['patches']} patches; {what}")
    return EXIT_OK


def _make_plain(
    release: Release, target: Path, version: str, offline: bool
) -> dict[str, object]:
    result = make_tree(release, target, version=version, offline=offline, patched=False)
    return {**vars(result), "path": str(result.path)}


if __name__ == "__main__":
    sys.exit(run_main(main))
