"""What the smoke tests of an image found: statements that hold or do not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One statement about the image, whether it holds, and what was seen."""

    name: str
    passed: bool
    seen: str


@dataclass
class Smoke:
    """The checks in order; ``facts`` holds what they were judged on."""

    image: str
    base: str
    checks: list[Check] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    not_shown: str = ""

    def check(self, name: str, passed: bool, seen: object) -> None:
        """Add one check."""
        self.checks.append(Check(name, passed, str(seen)))

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)
