#!/usr/bin/env python3
"""Line coverage of every line that a release's series adds: 100 %, or exit 1."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.diff_coverage import measure
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.plan import make_plan
from patchkit.releases import Release, load_releases
from patchkit.series import load_series
from patchkit.step_progress import step_progress
from patchkit.upstream import open_source
from patchkit.upstream_tests import run_upstream_tests


def main(argv: Sequence[str] | None = None) -> int:
    """Run the upstream tests in a patched tree, compare with the diffs, print."""
    parser = argparse.ArgumentParser(
        prog="tools/diff_coverage.py",
        description=__doc__,
        epilog="exit: 0 every added line ran; 1 one did not, or a test failed",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--version", metavar="V", help="one release: 0.25, v0.25 …")
    which.add_argument("--all", action="store_true", help="every release")
    options = parser.parse_args(argv)
    releases = load_releases()
    chosen = (
        list(releases.release.values())
        if options.all
        else [releases.find(options.version)]
    )
    results = [_cover(release) for release in chosen]
    if len(results) > 1:
        print("\n".join(result.line for result in results))
    return EXIT_OK if all(result.is_right for result in results) else EXIT_REFUSED


@dataclass(frozen=True)
class Result:
    """Of one release: whether every test passed and every line ran, and a line."""

    is_right: bool
    line: str


def _cover(release: Release) -> Result:
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        step_progress(f"running the upstream tests of {release.name}"),
    ):
        run = run_upstream_tests(release, Path(folder).resolve())
    seconds = time.monotonic() - began
    if run.status:
        print(run.output)
        end = run.output.strip().rpartition("\n")[2]
        return _say(Result(False, f"{release.name}: the upstream tests failed: {end}"))
    for test in run.left_out:
        print(f"left out: {test}")
    series = load_series(release)
    source = open_source(release, paths=series.paths)
    plan = make_plan(series.patches, source, policy="exact")
    files = measure(plan, run.lines)
    for file in files:
        for (patch, line), number in file.missing:
            print(f"{patch}:{line}: not run ({file.path}:{number})")
        ran = file.executable - len(file.missing)
        print(f"{file.path}: {ran} of {file.executable} executable added lines ran")
    total = sum(file.executable for file in files)
    ran = total - sum(len(file.missing) for file in files)
    added = sum(file.added for file in files)
    share = 100 * ran / total if total else 0.0
    return _say(
        Result(
            total > 0 and ran == total,
            f"{release.name}: {ran} of {total} executable lines of {added} added ran "
            f"({share:.1f} %), in {run.passed} tests, {len(run.left_out)} left out, "
            f"{seconds:.0f} s",
        )
    )


def _say(result: Result) -> Result:
    print(result.line, flush=True)
    return result


if __name__ == "__main__":
    sys.exit(run_main(main))
