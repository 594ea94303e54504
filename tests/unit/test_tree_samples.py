"""Each T and P rule speaks up on its bad sample, and not on its good one."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.contradictions import check_together
from patchkit.diff_model import Patch
from patchkit.findings import Finding, has_errors
from patchkit.parse import parse_patch
from patchkit.plan import Plan, Policy, make_plan, make_revert_plan
from patchkit.python_checks import check_python
from patchkit.rules import python, tree
from patchkit.tree_source import TreeSource

SAMPLES = Path(__file__).parents[1] / "diffs"


def folder(rule_id: str, name: str) -> Path:
    return SAMPLES / f"{rule_id}-{name}"


def parsed(path: Path) -> Patch:
    result = parse_patch(path.read_bytes(), path.name)
    assert result.patch is not None, result.findings
    return result.patch


def plan(place: Path, *names: str) -> Plan:
    # Only policy exact insists on ids; a patch that is alone goes by its context.
    policy: Policy = "exact" if place.name[:4] in ("T221", "T222") else "context"
    patches = [parsed(place / name) for name in names]
    return make_plan(patches, TreeSource(place / "tree"), policy=policy)


@pytest.mark.parametrize("rule", tree.RULES, ids=lambda rule: rule.id)
def test_tree_rules(rule: tree.Rule) -> None:
    place = folder(rule.id, rule.name)
    good = plan(place, "good.diff")
    assert good.state == "apply"
    assert rule.id not in {finding.code for finding in good.findings}
    if rule.id == "T234":
        pair = [parsed(place / name) for name in ("good.diff", "bad.diff")]
        assert [found.code for found in check_together(pair)] == [rule.id]
        return
    if rule.id == "T231":
        bad = plan(place, "good.diff", "bad.diff")
    elif rule.id == "T233":
        patch = parsed(place / "bad.diff")
        bad = make_revert_plan([patch], TreeSource(place / "tree"), policy="context")
    else:
        bad = plan(place, "bad.diff")
    assert rule.id in {finding.code for finding in bad.findings}
    warned = rule.id in ("T219", "T220")
    assert (bad.state == "refused", has_errors(bad.findings)) == (
        (False, False) if warned else (True, True)
    )


def python_findings(place: Path, name: str) -> list[Finding]:
    return check_python(
        plan(place, name),
        feature_version=(3, 9),
        ruff_config=place / "tree" / "pyproject.toml",
    )


@pytest.mark.parametrize("rule", python.RULES, ids=lambda rule: rule.id)
def test_python_rules(rule: python.Rule) -> None:
    place = folder(rule.id, rule.name)
    assert python_findings(place, "good.diff") == []
    found = python_findings(place, "bad.diff")
    assert rule.id in {finding.code for finding in found}
    bad = (place / "bad.diff").read_bytes().split(b"\n")
    assert all(bad[finding.line - 1].startswith(b"+") for finding in found)


def test_ids_are_unique() -> None:
    ids = [rule.id for rule in (*tree.RULES, *python.RULES)]
    assert len(ids) == len(set(ids))
