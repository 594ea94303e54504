#!/usr/bin/env python3
"""Upstream's own tests: the same outcomes with a release's series as without it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.own_tests import (
    TOOLS,
    TOUCHED,
    OwnRun,
    compare_runs,
    require_passes,
    run_own_tests,
)
from patchkit.releases import FLAVOURS, Release, load_releases
from patchkit.source_tree import make_tree
from patchkit.step_progress import step_progress
from patchkit.upstream_env import upstream_python

# The oldest, the one that most was proven on, and the newest.
DEFAULT = ("0.22", "0.25", "0.33")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tests on both trees of each release, compare, print."""
    parser = argparse.ArgumentParser(
        prog="tools/own_tests.py",
        description=__doc__,
        epilog="exit: 0 the same outcomes; 1 a test ends otherwise, or for another "
        "reason; 2 the tests cannot be run",
    )
    parser.add_argument(
        "--version",
        action="append",
        metavar="V",
        help=f"a release: 0.25, v0.25 …; again for another (default: {DEFAULT}, as far "
        "as they have the flavour)",
    )
    parser.add_argument(
        "--flavour", choices=FLAVOURS, default="capture", help="default: %(default)s"
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="upstream's files, folders or test ids (default: those of what the "
        f"flavour touches: {' '.join(TOUCHED['capture'])} …)",
    )
    options = parser.parse_args(argv)
    releases = load_releases()
    found = [releases.find_version(v) for v in options.version or DEFAULT]
    flavour = options.flavour
    if not options.version:
        found = [(r, version) for r, version in found if flavour in r.flavours]
    paths = tuple(options.paths) or TOUCHED[flavour]
    results = [_compare(release, version, flavour, paths) for release, version in found]
    if len(results) > 1:
        print("\n".join(line for _, line in results))
    return EXIT_OK if all(same for same, _ in results) else EXIT_REFUSED


def _compare(
    release: Release, version: str, flavour: str, paths: Sequence[str]
) -> tuple[bool, str]:
    """Whether the outcomes of one version are the same, and a line that says so."""
    python = upstream_python(release, TOOLS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()

        def run(kind: str) -> OwnRun:
            tree = folder / kind
            patched = kind == "patched"
            make_tree(release, tree, version=version, flavour=flavour, patched=patched)
            with step_progress(f"running upstream's tests on {version}, {kind}"):
                done = run_own_tests(python, tree, folder / f"{kind}-run", paths=paths)
            tests = len(done.outcomes)
            print(f"{version} {kind}: {tests} tests, {done.seconds:.0f} s")
            return done

        unpatched = run("unpatched")
        require_passes(unpatched, paths)
        patched = run("patched")
    for reason in unpatched.reasons:
        print(f"unpatched: {reason}")
    found = compare_runs(unpatched, patched)
    for difference in found:
        print(difference)
    if found:
        if {"died", "absent"} & {difference.patched.word for difference in found}:
            print(patched.tail)
        line = f"{version}: {len(found)} tests differ; patched: {patched.counts}"
    else:
        line = f"{version}: the same outcomes: {patched.counts}"
    print(line, flush=True)
    return not found, line


if __name__ == "__main__":
    sys.exit(run_main(main))
