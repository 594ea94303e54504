"""Runs ``tests/upstream/in_tree`` in a patched tree, and measures what it covers."""

from __future__ import annotations

import os
from pathlib import Path

from patchkit.covered_run import CoveredRun, run_covered, tree_environment
from patchkit.releases import PROJECT, Release
from patchkit.series import load_series
from patchkit.source_tree import make_tree
from patchkit.upstream_env import upstream_python

IN_TREE = PROJECT / "tests" / "upstream" / "in_tree"


def run_upstream_tests(
    release: Release, folder: Path, *, version: str | None = None
) -> CoveredRun:
    """Make a patched tree in ``folder`` and run the tests there, under coverage.

    Raises EnvironmentProblem when the run gives no coverage at all.
    """
    series = load_series(release)
    tree = folder / "tree"
    make_tree(release, tree, version=version, only="vllm/")
    words = ["-q", "--no-header", "-p", "no:cacheprovider", "-c", os.devnull]
    words += ["--rootdir", str(IN_TREE), "--confcutdir", str(IN_TREE), str(IN_TREE)]
    return run_covered(
        upstream_python(release),
        tree,
        series.paths,
        words,
        folder,
        environment=tree_environment(tree),
    )
