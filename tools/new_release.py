#!/usr/bin/env python3
"""Find releases that the kit does not have, port each, and say what is left to do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from patchkit.cache import whole_file
from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.findings import Finding, has_errors
from patchkit.index_versions import list_indexed
from patchkit.new_release import Arrival, find_missing, take_in
from patchkit.releases import load_releases
from patchkit.report import as_text
from patchkit.verify import verify_releases

EPILOG = """\
A new release gets its table in releases.toml and the patches that git can carry over;
those with conflicts are left out and named. A new version of a release that the kit
has is added where the release's series fits it. Commit what this writes, or not.

exit: 0 done, with what is left to do printed; 1 a port failed, or the verifier has
findings; 2 wrong arguments or no package index
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, look, port, verify; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tools/new_release.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--list", action="store_true", help="only say what the kit lacks"
    )
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="also write Markdown, for a PR"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    missing = find_missing(load_releases(), list_indexed())
    arrivals = [Arrival(each) for each in missing]
    findings: list[Finding] = []
    if not options.list:
        arrivals = take_in(load_releases, missing, _progress)
        names = [each.missing.release for each in arrivals if each.done]
        findings = verify_releases(names).findings if names else []
    if options.format == "json":
        print(json.dumps(_as_json(arrivals, findings), indent=2))
    else:
        print("\n".join(_rows(arrivals, findings)))
    if options.summary is not None:
        with whole_file(options.summary) as partial:
            partial.write_text(_markdown(arrivals, findings), encoding="utf-8")
    failed = any(each.failed for each in arrivals) or has_errors(findings)
    return EXIT_REFUSED if failed else EXIT_OK


def _progress(what: str) -> None:
    print(f"new: {what}", file=sys.stderr, flush=True)


def _rows(arrivals: Sequence[Arrival], findings: Sequence[Finding]) -> list[str]:
    if not arrivals:
        return ["the kit has every release of the index from its oldest on"]
    rows = []
    for each in arrivals:
        rows.append(f"{each.missing.kind} {each.missing}")
        rows += [f"  {row}" for row in (*each.done, *each.todo)]
        if each.failed:
            rows.append(f"  failed: {each.failed}")
    rows += [row for found in findings for row in as_text(found)]
    return rows


def _markdown(arrivals: Sequence[Arrival], findings: Sequence[Finding]) -> str:
    rows = ["Made by `make new-release`.", ""]
    for each in arrivals:
        rows += [f"### {each.missing}", ""]
        rows += [f"- {row}" for row in each.done]
        rows += [f"- [ ] {row.removeprefix('to do: ')}" for row in each.todo]
        if each.failed:
            rows.append(f"- [ ] failed: {each.failed}")
        rows.append("")
    if findings:
        rows += ["### The verifier's findings", "", "```"]
        rows += [row for found in findings for row in as_text(found)]
        rows.append("```")
    return "\n".join(rows) + "\n"


def _as_json(
    arrivals: Sequence[Arrival], findings: Sequence[Finding]
) -> dict[str, object]:
    return {
        "missing": [
            {
                "kind": each.missing.kind,
                "release": each.missing.release,
                "versions": [str(sdist.version) for sdist in each.missing.versions],
                "done": each.done,
                "to_do": each.todo,
                "failed": each.failed or None,
            }
            for each in arrivals
        ],
        "findings": [vars(found) for found in findings],
    }


if __name__ == "__main__":
    sys.exit(run_main(main))
