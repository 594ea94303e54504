#!/usr/bin/env python3
"""Apply a release's series, or any diff, to a tree: exactly, all of it, or nothing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from patchkit.apply_command import Action, Outcome, Request, run
from patchkit.blob import blob_id
from patchkit.command_line import run as run_main
from patchkit.diff_paths import shown
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.file_state import FileState
from patchkit.report import SCHEMA, as_json, as_text

EXAMPLES = """\
examples:
  tools/apply.py --root /src/vllm --version 0.25            apply the capture series
  tools/apply.py --root SITE --version 0.25 --policy context    to an installed wheel
  tools/apply.py --root . --check fix.patch                 would this diff fit here?
  tools/apply.py --root /src/vllm --version 0.25 --status   what is there now?
  tools/apply.py --root /src/vllm --version 0.25 --revert   take it off again

exit: 0 done, or nothing to do; 1 refused, and nothing was changed; 2 wrong
arguments or a machine that lacks something; 3 a bug of the kit. --status: 0 where
it can be told (none, the first few, or all of the patches), 1 where files disagree.

A run that was killed is undone by the next one, of whatever kind, before it does
anything else. Where a patch removes files of unusual mode or owner, these are kept in
DIR/.vllm-patchkit/attributes.json until --revert gives them back.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, run, print; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.flavour is not None and options.version is None:
        parser.error("--flavour goes with --version")
    request = Request(
        root=options.root,
        action=options.action,
        version=options.version,
        flavour=options.flavour or "capture",
        patches=tuple(options.patches),
        policy=options.policy,
    )
    outcome = run(request)
    if options.format == "json":
        print(json.dumps(_as_json(request, outcome), indent=2))
    else:
        for line in _as_text(request, outcome):
            print(shown(line))
    return EXIT_REFUSED if outcome.state == "refused" else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/apply.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--root", type=Path, required=True, help="the tree: the folder a/ stands for"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--version", metavar="V", help="a release: 0.25, v0.25, 0.25.1")
    what.add_argument(
        "patches",
        nargs="*",
        default=[],
        metavar="PATCH",
        help="any diff, in order; - is stdin",
    )
    parser.add_argument(
        "--flavour",
        help="with --version: capture (the default) or ascend",
    )
    how = parser.add_mutually_exclusive_group()
    actions: dict[Action, str] = {
        "check": "judge only; write nothing",
        "revert": "take the patches off; every byte, mode and owner as before",
        "status": "say which of the patches are there; write nothing",
    }
    for action, text in actions.items():
        how.add_argument(
            f"--{action}", dest="action", action="store_const", const=action, help=text
        )
    parser.set_defaults(action="apply")
    parser.add_argument(
        "--policy",
        choices=("exact", "context"),
        help="exact: each file is the pinned one, byte for byte (the default with "
        "--version); context: it may differ away from the hunks (with PATCH)",
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="taken for likeness with verify_hunks.py: this command never goes online",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser


def _last_line(request: Request, outcome: Outcome) -> str:
    total, there = len(outcome.names), len(outcome.standing)
    changed = len(outcome.plan.changes)
    where = f"{request.root} (policy {outcome.policy})"
    planned = total - there
    return {
        "applied": f"applied {planned} of {total} patches, {changed} files, to {where}",
        "already": f"all {total} patches are already applied to {where}",
        "fits": f"{planned} of {total} patches, {changed} files, fit {where}; "
        "nothing was written",
        "reverted": f"reverted {total - len(outcome.plan.skipped)} of {total} patches, "
        f"{changed} files, in {where}",
        "untouched": f"none of {total} patches is applied to {where}",
        "partly": f"the first {there} of {total} patches are applied to {where}",
        "refused": f"refused; nothing was changed in {where}",
    }[outcome.state]


def _as_text(request: Request, outcome: Outcome) -> Iterator[str]:
    for finding in outcome.findings:
        yield from as_text(finding)
    for note in outcome.notes:
        yield f"note: {note}"
    if request.action != "status":
        for name in outcome.standing if outcome.state != "already" else ():
            yield f"already there: {name}"
        would = "would " if outcome.state == "fits" else ""
        for file in (*outcome.plan.changes, *outcome.beside):
            verb = "write" if file.before else "create"
            yield f"{would}{'remove' if file.after is None else verb} {file.path}"
        for path in outcome.removed:
            if path.endswith(".pyc"):
                yield f"remove {path} (old bytecode)"
    elif outcome.state != "refused":
        for name in outcome.names:
            yield f"{'applied' if name in outcome.standing else '      -'}  {name}"
        for path, (there, total) in sorted(outcome.paths.items()):
            yield f"{_standing(there, total):>9}  {path}"
    yield _last_line(request, outcome)


def _standing(there: int, total: int) -> str:
    """Of one file: whether the patches that touch it are there."""
    if there in (0, total):
        return "patched" if there else "untouched"
    return f"{there} of {total}"


def _as_json(request: Request, outcome: Outcome) -> dict[str, Any]:
    """The outcome for machines. Keys stay; a change of meaning counts ``schema`` up.

    ``state`` is one of those of ``Outcome``. ``patches`` has each patch's ``name`` and
    whether it was there before (``applied_before``); ``patch_set`` the digest of a
    release's series, else null. ``files`` has for each path ``before`` and ``after``,
    each null or ``{"blob", "mode"}`` in git's terms, as planned; ``removed`` all paths
    that went, old bytecode too. ``standing``, with --status, has for each path how
    many of ``total`` patches that touch it are ``applied``. ``findings`` are those of
    the verifier's JSON, ``notes`` lines for a person.
    """

    def side(state: FileState | None) -> dict[str, str] | None:
        if state is None:
            return None
        return {"blob": blob_id(state.data), "mode": f"{state.mode:o}"}

    return {
        "schema": SCHEMA,
        "state": outcome.state,
        "root": str(request.root),
        "policy": outcome.policy,
        "patches": [
            {"name": name, "applied_before": name in outcome.standing}
            for name in outcome.names
        ],
        "patch_set": outcome.digest,
        "files": [
            {"path": f.path, "before": side(f.before), "after": side(f.after)}
            for f in (*outcome.plan.files, *outcome.beside)
        ],
        "removed": list(outcome.removed),
        "standing": [
            {"path": path, "applied": there, "total": total}
            for path, (there, total) in sorted(outcome.paths.items())
        ],
        "findings": [as_json(finding) for finding in outcome.findings],
        "notes": outcome.notes,
    }


if __name__ == "__main__":
    sys.exit(run_main(main))
