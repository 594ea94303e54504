#!/usr/bin/env python3
"""Verify diffs: their form, their hunks on a tree, or a release's whole series."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED, UsageError
from patchkit.findings import has_errors
from patchkit.report import FORMATS, render
from patchkit.rules import RULES
from patchkit.text_checks import DEFAULT_WIDTH
from patchkit.verify import Report, verify_files, verify_releases

EXAMPLES = """\
examples:
  %(prog)s fix.patch                  its form and its added lines
  %(prog)s fix.patch --tree /src      and every hunk's place in a tree
  %(prog)s --version 0.25             a release against its pinned source
  %(prog)s --all --offline            every release, from the cache alone
  %(prog)s *.patch --format sarif     for code scanning
  %(prog)s --explain H103             what a rule is about

--version and --all judge the releases of the kit that this file is in: an installed
verify-hunks has none.

exit: 0 no errors (warnings may be); 1 errors; 2 wrong arguments or a machine that
lacks something; 3 a bug of the kit
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, verify, print; returns the exit code."""
    options = _parser().parse_args(argv)
    if options.explain:
        return _explain(options.explain)
    report = _verify(options)
    print(render(report.findings, options.format, summary=report.summary()))
    return EXIT_REFUSED if has_errors(report.findings) else EXIT_OK


def _verify(options: argparse.Namespace) -> Report:
    releases = options.all or options.version
    if bool(options.patches) == bool(releases):
        raise UsageError(
            "give patch files, or a release, and not both",
            hint="verify_hunks.py fix.patch; verify_hunks.py --version 0.25; or --all",
        )
    if options.patches:
        return verify_files(options.patches, tree=options.tree, width=options.width)
    if options.tree is not None:
        raise UsageError(
            "--tree goes with patch files",
            hint="to judge a release on a tree: tools/apply.py --root DIR --version V "
            "--check",
        )
    return verify_releases(
        [] if options.all else [options.version],
        flavour=options.flavour,
        width=options.width,
        offline=options.offline,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "patches", nargs="*", metavar="PATCH", help="any diff; - is stdin"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--version", metavar="V", help="one release: 0.25, v0.25, 0.25.1"
    )
    which.add_argument("--all", action="store_true", help="every release")
    parser.add_argument(
        "--flavour", help="with a release: capture or ascend (default: all it has)"
    )
    parser.add_argument(
        "--tree", type=Path, metavar="DIR", help="judge the PATCHes, in order, on DIR"
    )
    parser.add_argument(
        "--width",
        type=int,
        default=DEFAULT_WIDTH,
        help=f"columns of an added Python line (default {DEFAULT_WIDTH})",
    )
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument(
        "--offline", action="store_true", help="use the cache alone, download nothing"
    )
    parser.add_argument(
        "--explain", metavar="RULE", help="print what a rule is about, or 'all' of them"
    )
    return parser


def _explain(wanted: str) -> int:
    rules = list(RULES.values()) if wanted == "all" else [RULES.get(wanted.upper())]
    for rule in rules:
        if rule is None:
            raise UsageError(
                f"no rule {wanted!r}", hint="verify_hunks.py --explain all lists them"
            )
        print(f"{rule.id} {rule.name} ({rule.severity}): {rule.doc}")
    return EXIT_OK


def console() -> int:
    """The installed command ``verify-hunks``."""
    return run_main(main)


if __name__ == "__main__":
    sys.exit(console())
