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
from patchkit.covered_run import CoveredRun
from patchkit.diff_coverage import measure
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.npu_tests import FLAVOUR as ASCEND
from patchkit.npu_tests import run_npu_tests
from patchkit.plan import make_plan
from patchkit.releases import FLAVOURS, Release, load_releases
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
    which.add_argument("--all", action="store_true", help="every release that has it")
    parser.add_argument(
        "--flavour",
        choices=FLAVOURS,
        default="capture",
        help="ascend: tests/npu, and the lines of the patches that flavour adds "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--tree",
        metavar="DIR",
        type=Path,
        help="with --flavour ascend: a tree with the series in it, as it lies there",
    )
    options = parser.parse_args(argv)
    if options.tree and options.flavour != ASCEND:
        parser.error("--tree goes with --flavour ascend")
    releases = load_releases()
    chosen = (
        [r for r in releases.release.values() if options.flavour in r.flavours]
        if options.all
        else [releases.find(options.version)]
    )
    results = [_cover(release, options.flavour, options.tree) for release in chosen]
    if len(results) > 1:
        print("\n".join(result.line for result in results))
    return EXIT_OK if all(result.is_right for result in results) else EXIT_REFUSED


@dataclass(frozen=True)
class Result:
    """Of one release: whether every test passed and every line ran, and a line."""

    is_right: bool
    line: str


def _cover(release: Release, flavour: str, tree: Path | None) -> Result:
    began = time.monotonic()
    series = load_series(release, flavour)
    run = _run(release, flavour, tree)
    seconds = time.monotonic() - began
    kind = "upstream" if flavour == "capture" else "NPU"
    if run.status:
        end = run.output.strip().rpartition("\n")[2]
        return _say(Result(False, f"{release.name}: the {kind} tests failed: {end}"))
    for test in run.left_out:
        print(f"left out: {test}")
    source = open_source(release, paths=series.paths)
    plan = make_plan(series.patches, source, policy="exact")
    # The flavour's own patches: those of the series below it have tests of their own.
    below = () if flavour == "capture" else load_series(release).patches
    own = {patch.name for patch in series.patches} - {patch.name for patch in below}
    files = measure(plan, run.lines, own)
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


def _run(release: Release, flavour: str, tree: Path | None) -> CoveredRun:
    """The flavour's tests. Their output is printed, where they fail at the latest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        if flavour == ASCEND:
            version = release.versions[0]
            return run_npu_tests(release, version, folder, tree=tree)
        with step_progress(f"running the upstream tests of {release.name}"):
            run = run_upstream_tests(release, folder)
    if run.status:
        print(run.output)
    return run


def _say(result: Result) -> Result:
    print(result.line, flush=True)
    return result


if __name__ == "__main__":
    sys.exit(run_main(main))
