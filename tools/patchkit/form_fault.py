"""The exception inside the reader: a fault of form at one line."""

from __future__ import annotations

from patchkit.findings import Finding, Severity


class FormFault(Exception):
    """A fault at ``line`` of the patch file; ``parse`` turns it into a finding."""

    def __init__(
        self,
        line: int,
        code: str,
        message: str,
        hint: str = "",
        severity: Severity = "error",
    ) -> None:
        super().__init__(message)
        self.line = line
        self.code = code
        self.message = message
        self.hint = hint
        self.severity = severity

    def finding(self, name: str) -> Finding:
        """The finding for the patch file called ``name``."""
        return Finding(
            name, self.line, self.code, self.message, self.severity, self.hint
        )
