#!/usr/bin/env python3
"""Verify the patches of a repository in a job of GitHub Actions: for action.yml alone.

What the action was given comes in VERIFY_PATCHES, VERIFY_TREE, VERIFY_WIDTH and
VERIFY_SARIF, what GitHub says in GITHUB_WORKSPACE, GITHUB_OUTPUT, GITHUB_STEP_SUMMARY
and RUNNER_TEMP. One reading of the patches gives the annotations on standard output,
the SARIF file, the job's summary and the outputs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from patchkit.command_line import run as run_main
from patchkit.errors import (
    EXIT_OK,
    EXIT_REFUSED,
    EnvironmentProblem,
    KitError,
    UsageError,
)
from patchkit.find_patches import find_patches
from patchkit.findings import has_errors
from patchkit.job_summary import job_summary
from patchkit.report import render, workflow_error
from patchkit.text_checks import DEFAULT_WIDTH
from patchkit.verify import verify_files


def main(argv: Sequence[str] | None = None) -> int:
    """Verify and write; returns the exit code. Takes no arguments."""
    del argv
    try:
        return _act()
    except KitError as error:
        # Standard error is in the log alone; this is on the job's page as well.
        hint = f" ({error.hint})" if error.hint else ""
        print(workflow_error("verify-hunks", f"{error}{hint}"))
        raise


def _act() -> int:
    workspace = Path(_given("GITHUB_WORKSPACE") or Path.cwd())
    # Findings name their files from here, and so do annotations.
    os.chdir(workspace)
    width = _given("VERIFY_WIDTH") or str(DEFAULT_WIDTH)
    if not (width.isascii() and width.isdigit()):
        raise UsageError(f"width: {width!r} is no number of columns")
    sarif = _sarif_file()
    tree = _given("VERIFY_TREE")
    names = find_patches(workspace, os.environ.get("VERIFY_PATCHES", ""))
    report = verify_files(
        # Alone, a dash would be standard input.
        ["./-" if name == "-" else name for name in names],
        tree=Path(tree) if tree else None,
        width=int(width),
    )
    findings = report.findings
    print(render(findings, "github", summary=report.summary()))
    _write(sarif, render(findings, "sarif", summary={}) + "\n")
    errors = sum(finding.severity == "error" for finding in findings)
    outputs = f"findings={len(findings)}\nerrors={errors}\nsarif={sarif}\n"
    _append("GITHUB_OUTPUT", outputs)
    _append("GITHUB_STEP_SUMMARY", job_summary(findings, report.patches))
    return EXIT_REFUSED if has_errors(findings) else EXIT_OK


def _given(name: str) -> str:
    return os.environ.get(name, "").strip()


def _sarif_file() -> Path:
    wanted = _given("VERIFY_SARIF")
    if "\n" in wanted or "\r" in wanted:
        # It would be further lines, and so further outputs, in GITHUB_OUTPUT.
        raise UsageError("sarif: wanted the name of one file, without line breaks")
    if wanted:
        return Path(wanted)
    return Path(_given("RUNNER_TEMP") or tempfile.gettempdir()) / "verify-hunks.sarif"


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"sarif: {file}: {error.strerror}") from None


def _append(variable: str, text: str) -> None:
    """Append to one of the files that GitHub reads when the step has ended."""
    name = _given(variable)
    if not name:
        return
    try:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise EnvironmentProblem(f"{variable}: {name}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(run_main(main))
