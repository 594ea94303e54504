"""Findings as a Markdown table, for the summary page of a CI job."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.findings import Finding
from patchkit.report import count_line
from patchkit.rules import RULES

MOST_ROWS = 200  # a page of GitHub's holds 1 MiB; the SARIF file has every finding


def job_summary(findings: Sequence[Finding], patches: int) -> str:
    """A heading with the counts, then a row for each finding."""
    lines = [f"### verify-hunks: {count_line(findings)} in {patches} patches"]
    if findings:
        lines += ["", "| where | rule | what |", "|---|---|---|"]
        lines += [_row(finding) for finding in findings[:MOST_ROWS]]
    if len(findings) > MOST_ROWS:
        lines += [
            "",
            f"… and {len(findings) - MOST_ROWS} more: the SARIF file has all.",
        ]
    return "\n".join([*lines, ""])


def _row(finding: Finding) -> str:
    rule = f"{finding.severity} {finding.code} {RULES[finding.code].name}"
    what = finding.message + (f" (hint: {finding.hint})" if finding.hint else "")
    where = f"{finding.path}:{finding.line}"
    return f"| {_literal(where)} | {_literal(rule)} | {_literal(what)} |"


def _literal(text: str) -> str:
    """Text that Markdown and HTML leave alone: it may come from anyone's patch."""
    # As a character reference, a sign is never structure: CommonMark, section 2.5.
    return "".join(
        char if char.isalnum() or char in " /-" else f"&#{_code(char)};"
        for char in text
    )


def _code(char: str) -> int:
    # A byte of a name that is no UTF-8 is a lone surrogate here, which no page has.
    return 0xFFFD if "\ud800" <= char <= "\udfff" else ord(char)
