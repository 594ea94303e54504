#!/usr/bin/env python3
"""Draw how a release's patches fit every other release, as an SVG."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from patchkit.cache import whole_file
from patchkit.command_line import run as run_main
from patchkit.drift_map import Column, drift_svg
from patchkit.drift_report import counts_line, drift_json
from patchkit.errors import EXIT_OK
from patchkit.find_drift import drift_to_version
from patchkit.index_versions import list_indexed
from patchkit.releases import PROJECT, Releases, load_releases
from patchkit.step_progress import step_progress

DEFAULT_OUT = PROJECT / "build" / "drift-map.svg"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, compare with each release, draw."""
    parser = argparse.ArgumentParser(
        prog="tools/drift_map.py",
        description=__doc__,
        epilog="exit: 0 drawn; 1 the series is not sound; 2 wrong arguments, no source",
    )
    parser.add_argument(
        "--from", dest="source", metavar="V", help="whose patches: default the newest"
    )
    parser.add_argument("--flavour", default="capture", help="capture or ascend")
    parser.add_argument(
        "--to",
        nargs="+",
        metavar="W",
        help="default: every release on the index from the kit's oldest on; offline "
        "those of the kit",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, help="default: build/drift-map.svg"
    )
    parser.add_argument(
        "--offline", action="store_true", help="use the cache alone, download nothing"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    releases = load_releases()
    source = options.source or max(releases.release, key=Version)
    columns = []
    for target in options.to or _targets(releases, options.offline):
        with step_progress(f"{source} on {target}"):
            drift = drift_to_version(
                releases, source, target, options.flavour, options.offline
            )
        columns.append(Column(drift.target.removeprefix("vLLM "), drift))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    title = f"How the patches of {source} ({options.flavour}) fit other releases"
    with whole_file(options.out) as partial:
        partial.write_text(drift_svg(title, columns), encoding="utf-8")
    if options.format == "json":
        entry = {
            "picture": str(options.out),
            "releases": [drift_json(column.drift) for column in columns],
        }
        print(json.dumps(entry, indent=2))
        return EXIT_OK
    for column in columns:
        print(f"{column.release:8} {counts_line(column.drift)}")
    print(options.out)
    return EXIT_OK


def _targets(releases: Releases, offline: bool) -> list[str]:
    """The newest version of each release, oldest first."""
    oldest = min(map(Version, releases.release))
    if offline:
        newest = [release.versions[0] for release in releases.release.values()]
        return sorted(newest, key=Version)
    by_release = {
        each.release: str(each.version)
        for each in list_indexed()
        if Version(each.release) >= oldest
    }
    return list(by_release.values())


if __name__ == "__main__":
    sys.exit(run_main(main))
