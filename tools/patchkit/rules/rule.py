"""What a rule is: an id, a name and one line of documentation. Rules are data."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.findings import Severity


@dataclass(frozen=True)
class Rule:
    """One rule. ``id`` is printed with each finding, ``name`` is its kebab-case name.

    Each rule has a folder ``tests/diffs/<id>-<name>/`` with a good and a bad sample.
    """

    id: str
    name: str
    doc: str
    severity: Severity = "error"
