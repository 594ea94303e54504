"""W3xx: the text of added lines. What stood there before is not measured."""

from __future__ import annotations

from patchkit.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("W301", "trailing-blank", "An added line ends in white space."),
    Rule("W302", "width", "An added line of Python is too wide, as ruff's E501 is."),
    Rule(
        "W303", "space-before-tab", "An added line's indent has a blank before a tab."
    ),
    Rule("W304", "conflict-marker", "An added line is a merge conflict's marker."),
    Rule("W305", "blank-at-eof", "Blank lines are added at the end of a file."),
    Rule("W306", "cr-added", "An added line ends in CR, in a file of LF lines."),
)
