"""Each F, H and W rule speaks up on its bad sample alone, and not on its good one."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.parse import parse_patch
from patchkit.rules import RULES, form, text
from patchkit.rules.rule import Rule
from patchkit.text_checks import check_text

SAMPLES = Path(__file__).parents[1] / "diffs"


def codes(data: bytes) -> list[str]:
    result = parse_patch(data, "sample.diff")
    found = list(result.findings)
    if result.patch is not None:
        found += check_text(result.patch)
    return [finding.code for finding in found]


@pytest.mark.parametrize(
    "rule", (*form.RULES, *text.RULES), ids=lambda rule: f"{rule.id}-{rule.name}"
)
def test_samples(rule: Rule) -> None:
    folder = SAMPLES / f"{rule.id}-{rule.name}"
    assert codes((folder / "good.diff").read_bytes()) == []
    assert set(codes((folder / "bad.diff").read_bytes())) == {rule.id}


def test_every_rule_has_samples_and_every_folder_a_rule() -> None:
    folders = {path.name for path in SAMPLES.iterdir() if path.is_dir()}
    assert folders == {f"{rule.id}-{rule.name}" for rule in RULES.values()}


def test_ids_and_names_are_unique() -> None:
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
    assert all(rule.id == key and rule.doc.endswith(".") for key, rule in RULES.items())
