"""Findings as text, JSON, GitHub annotations and SARIF 2.1.0."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal
from urllib.parse import quote

from patchkit.diff_paths import shown
from patchkit.findings import Finding
from patchkit.rules import RULES

Format = Literal["text", "json", "github", "sarif"]
FORMATS: tuple[Format, ...] = ("text", "json", "github", "sarif")
SCHEMA = 1  # of the JSON output; a change of meaning counts it up

_LEVELS = {"error": "error", "warning": "warning", "note": "note"}
_GITHUB = {"error": "error", "warning": "warning", "note": "notice"}


def render(
    findings: Sequence[Finding], form: Format, *, summary: Mapping[str, Any]
) -> str:
    """The whole output of a command; ``summary["line"]`` is its last line as text."""
    if form == "json":
        return json.dumps(
            {
                "schema": SCHEMA,
                "findings": [as_json(finding) for finding in findings],
                **{key: value for key, value in summary.items() if key != "line"},
            },
            indent=2,
        )
    if form == "sarif":
        return json.dumps(_sarif(findings), indent=2)
    if form == "github":
        lines = [_annotation(finding) for finding in findings]
    else:
        lines = [line for finding in findings for line in as_text(finding)]
    lines += [shown(line) for line in str(summary["line"]).split("\n")]
    return "\n".join(lines)


def outcome(findings: Sequence[Finding]) -> str:
    """The last line of a command that verified what it wrote."""
    count = sum(finding.severity == "error" for finding in findings)
    if count:
        return f"written, but not right yet: {count} error{'s' if count > 1 else ''}"
    return "verified: no errors" if findings else "verified: no findings"


def as_json(finding: Finding) -> dict[str, Any]:
    """One finding as JSON: path, line, code, rule, severity, message, hint, detail."""
    return {
        "path": finding.path,
        "line": finding.line,
        "code": finding.code,
        "rule": RULES[finding.code].name,
        "severity": finding.severity,
        "message": finding.message,
        "hint": finding.hint,
        "detail": list(finding.detail),
    }


def as_text(finding: Finding) -> list[str]:
    """``path:line: CODE message``, then indented details and the hint."""
    kind = "" if finding.severity == "error" else f"{finding.severity}: "
    lines = [
        f"{finding.path}:{finding.line}: {finding.code} {kind}{finding.message}",
        *(f"    {line}" for line in finding.detail),
    ]
    if finding.hint:
        lines.append(f"    hint: {finding.hint}")
    # Paths and texts of a patch are someone else's: none may act on the terminal.
    return [shown(line) for line in lines]


def count_line(findings: Iterable[Finding]) -> str:
    """``2 errors, 1 warning``, or ``no findings``."""
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.severity] = counts.get(finding.severity, 0) + 1
    parts = [
        f"{counts[kind]} {kind}{'s' if counts[kind] > 1 else ''}"
        for kind in ("error", "warning", "note")
        if kind in counts
    ]
    return ", ".join(parts) or "no findings"


def workflow_error(title: str, message: str) -> str:
    """An annotation of the job as a whole, for what is no finding."""
    return f"::error title={_escape_property(title)}::{_escape(message)}"


def _annotation(finding: Finding) -> str:
    """A GitHub workflow command; its escapes are those of actions/toolkit."""
    hint = [f"hint: {finding.hint}"] if finding.hint else []
    message = "\n".join(map(shown, (finding.message, *finding.detail, *hint)))
    rule = RULES[finding.code].name
    properties = (
        f"file={_escape_property(finding.path)},line={max(finding.line, 1)},"
        f"title={_escape_property(f'{finding.code} {rule}')}"
    )
    return f"::{_GITHUB[finding.severity]} {properties}::{_escape(message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    used = sorted({finding.code for finding in findings})
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "vllm-patchkit",
                        "rules": [_sarif_rule(code) for code in used],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [
                    _sarif_result(finding, used.index(finding.code))
                    for finding in findings
                ],
            }
        ],
    }


def _sarif_rule(code: str) -> dict[str, Any]:
    rule = RULES[code]
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.doc},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _uri(path: str) -> str:
    """A path as a URI reference: any byte may be in a file's name."""
    return quote(os.fsencode(PurePath(path).as_posix()))


def _sarif_result(finding: Finding, index: int) -> dict[str, Any]:
    text = "\n".join([finding.message, *finding.detail])
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{text}\nhint: {finding.hint}" if finding.hint else text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(finding.path)},
                    "region": {"startLine": max(finding.line, 1)},
                }
            }
        ],
    }
