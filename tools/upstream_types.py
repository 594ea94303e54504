#!/usr/bin/env python3
"""Upstream's own mypy hook on the files of a series: the patches bring no error."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.plan import make_plan
from patchkit.plan_types import Plan
from patchkit.releases import FLAVOURS, load_releases
from patchkit.series import load_series
from patchkit.source_tree import make_tree
from patchkit.step_progress import step_progress
from patchkit.upstream import open_source
from patchkit.upstream_types import (
    Mistyped,
    new_errors,
    open_type_check,
    type_errors,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run mypy with the flavour's own patches and, where that has errors, without."""
    parser = argparse.ArgumentParser(
        prog="tools/upstream_types.py",
        description=__doc__,
        epilog="exit: 0 no error; 1 errors; 2 mypy cannot be run",
    )
    parser.add_argument("--version", required=True, metavar="V", help="0.25, v0.25 …")
    parser.add_argument(
        "--flavour", choices=FLAVOURS, default="capture", help="default: %(default)s"
    )
    parser.add_argument(
        "--tree",
        metavar="DIR",
        type=Path,
        help="a patched tree, as it lies there (default: one made from the series)",
    )
    options = parser.parse_args(argv)
    release, version = load_releases().find_version(options.version)
    began = time.monotonic()
    series = load_series(release, options.flavour)
    paths = [path for path in series.paths if path.endswith(".py")]
    check = open_type_check(release, version)
    source = open_source(release, version=version, paths=series.paths)
    plan = make_plan(series.patches, source, policy="exact")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()

        def run(tree: Path, what: str) -> list[Mistyped]:
            with step_progress(f"running upstream's mypy on {version}, {what}"):
                return type_errors(check, tree, paths)

        def made(flavour: str, *, patched: bool = True) -> Path:
            tree = folder / f"{flavour}-{patched}"
            make_tree(
                release,
                tree,
                version=version,
                flavour=flavour,
                only="vllm/",
                patched=patched,
            )
            return tree

        errors = run(options.tree or made(options.flavour), "with the patches")
        if errors:
            # What is below the flavour's own patches.
            before = made("capture", patched=options.flavour != "capture")
            errors = new_errors(run(before, "without"), errors)
    for error in errors:
        # Another tree's lines need not be those of the patches.
        print(f"{'' if options.tree else _place(plan, error)}{error}")
    print(
        f"{version}: {len(errors)} errors of mypy as upstream's hook runs it, in "
        f"{len(paths)} files, {time.monotonic() - began:.0f} s"
    )
    return EXIT_REFUSED if errors else EXIT_OK


def _place(plan: Plan, error: Mistyped) -> str:
    """The line of a patch that the error is at, if it is at one of a patch's."""
    for file in plan.changes:
        if file.path == error.path and error.line <= len(file.origins):
            origin = file.origins[error.line - 1]
            return f"{origin[0]}:{origin[1]}: " if origin else ""
    return ""


if __name__ == "__main__":
    sys.exit(run_main(main))
