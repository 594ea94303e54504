#!/usr/bin/env python3
"""Write the commits of a release's work tree back as patch files, series and ledger."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.findings import has_errors
from patchkit.refresh import Refresh, plan_refresh, write_refresh
from patchkit.releases import load_releases
from patchkit.report import outcome, render
from patchkit.shared_texts import releases_of_files
from patchkit.verify import verify_releases
from patchkit.work_tree import default_target, open_work_tree

EPILOG = """\
In the tree, ordinary git does everything: commit --amend, rebase -i pinned (reorder,
split, drop, edit), cherry-pick. The first line of a commit's message is the patch's
Subject; its file keeps its name while that line, or the change, stays the same.

exit: 0 written, or nothing to write, and verified; 1 refused and nothing written, or
written and the verifier has findings (said last); 2 wrong arguments or no source
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, refresh, verify; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tools/refresh.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", required=True, metavar="V", help="0.25, 0.25.1 …")
    parser.add_argument("--flavour", default="capture", help="capture or ascend")
    parser.add_argument(
        "--tree", type=Path, metavar="DIR", help="default: where make tree puts it"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit 1 if something would be written",
    )
    parser.add_argument(
        "--offline", action="store_true", help="use the cache alone, download nothing"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    releases = load_releases()
    _, version = releases.find_version(options.version)
    target = options.tree or default_target(version, options.flavour)
    refresh = plan_refresh(releases, open_work_tree(target), offline=options.offline)
    if options.check:
        _print(refresh, options.format, written=False)
        return EXIT_REFUSED if refresh.written else EXIT_OK
    write_refresh(refresh)
    _print(refresh, options.format, written=True)
    names = releases_of_files(releases, refresh.written)
    if not names:
        return EXIT_OK
    report = verify_releases(names, offline=options.offline)
    if options.format == "text":
        print(
            render(report.findings, "text", summary={"line": outcome(report.findings)})
        )
    return EXIT_REFUSED if has_errors(report.findings) else EXIT_OK


def _print(refresh: Refresh, form: str, *, written: bool) -> None:
    if form == "json":
        entry = {
            "tree": str(refresh.tree.path),
            "patches": [vars(patch) for patch in refresh.patches],
            "dropped": refresh.dropped,
            "files": refresh.written,
            "notes": refresh.notes,
            "written": written,
        }
        print(json.dumps(entry, indent=2))
        return
    for patch in refresh.patches:
        was = f" (was {patch.before})" if patch.fate == "renamed" else ""
        print(f"{patch.fate:8} {patch.path}{was}")
    for name in refresh.dropped:
        print(f"dropped  {name}")
    for note in refresh.notes:
        print(f"note: {note}")
    verb = "written" if written else "would be written"
    count = len(refresh.written)
    print(f"{count} file{'s' * (count != 1)} {verb}" if count else "no byte changes")


if __name__ == "__main__":
    sys.exit(run_main(main))
