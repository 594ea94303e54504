#!/usr/bin/env python3
"""Write the tables of README.md that come from the kit's own files."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED, UsageError
from patchkit.releases import PROJECT, load_releases
from patchkit.text_table import text_table

BEGIN = "<!-- table of texts: make tables -->\n"
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
    before = readme.read_text()
    head, begin, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"README.md has no lines {BEGIN.strip()} and {END.strip()}")
    after = f"{head}{BEGIN}\n{text_table(load_releases())}\n\n{END}{tail}"
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


if __name__ == "__main__":
    sys.exit(run_main(main))
