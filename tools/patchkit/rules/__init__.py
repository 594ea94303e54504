"""Every rule, by id. A family is a module; a rule is one entry of its ``RULES``."""

from __future__ import annotations

from patchkit.rules import contract, form, python, series, text, tree
from patchkit.rules.rule import Rule

FAMILIES = (form, tree, text, python, series, contract)
RULES: dict[str, Rule] = {rule.id: rule for family in FAMILIES for rule in family.RULES}

__all__ = ["FAMILIES", "RULES", "Rule"]
