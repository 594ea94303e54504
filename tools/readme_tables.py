#!/usr/bin/env python3
"""Write the tables of README.md that come from the kit's own files."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED, UsageError
from patchkit.gpu_results import load_results
from patchkit.gpu_table import gpu_table
from patchkit.releases import PROJECT, load_releases
from patchkit.text_table import text_table

TABLES: dict[str, Callable[[], str]] = {
    "<!-- table of texts: make tables -->\n": lambda: text_table(load_releases()),
    "<!-- table of GPU results: make tables -->\n": lambda: gpu_table(load_results()),
}
END = "<!-- end of table -->\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, compare or write; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tools/readme_tables.py",
        description=__doc__,
        epilog="exit: 0 written, or right already; 1 --check: stale; 2 no such table",
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(argv)
    readme = PROJECT / "README.md"
    before = after = readme.read_text()
    for begin, make in TABLES.items():
        after = _with_table(after, begin, make())
    if after == before:
        return EXIT_OK
    if options.check:
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), "README.md", "README.md", "", "", 1
        )
        print("\n".join(lines))
        return EXIT_REFUSED
    readme.write_text(after)
    print("written: README.md")
    return EXIT_OK


def _with_table(text: str, begin: str, table: str) -> str:
    head, found, rest = text.partition(begin)
    _, end, tail = rest.partition(END)
    if not found or not end:
        raise UsageError(f"README.md has no lines {begin.strip()} and {END.strip()}")
    return f"{head}{begin}\n{table}\n\n{END}{tail}"


if __name__ == "__main__":
    sys.exit(run_main(main))
