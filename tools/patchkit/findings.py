"""What a check has to say: one finding, at one line of one patch file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One result of a rule.

    ``path`` is the patch file as the user named it and ``line`` its line, counted
    from 1; 0 stands for the file as a whole. ``code`` is the id of a rule in
    ``patchkit.rules``. ``detail`` holds further lines for a person, such as the
    expected and the found text side by side.
    """

    path: str
    line: int
    code: str
    message: str
    severity: Severity = "error"
    hint: str = ""
    detail: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.code} {self.message}"


def has_errors(findings: list[Finding] | tuple[Finding, ...]) -> bool:
    """Tell whether any finding is an error; warnings and notes never refuse."""
    return any(finding.severity == "error" for finding in findings)
