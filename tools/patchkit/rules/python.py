"""Rules on the Python files a patch leaves behind."""

from __future__ import annotations

from patchkit.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("P401", "does-not-compile", "Each changed Python file compiles."),
    Rule("P402", "syntax-warning", "A patch brings no new warning of the compiler."),
    Rule(
        "P403", "upstream-lint", "Upstream's own ruff rules pass no worse than before."
    ),
    Rule("P404", "upstream-format", "A file upstream's ruff had formatted stays so."),
    Rule("P405", "python-version", "Each file parses under the image's Python."),
)
