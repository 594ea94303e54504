"""N6xx: what the Ascend patches use of torch_npu is in each pinned wheel."""

from __future__ import annotations

from patchkit.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("N601", "torch-npu-name", "A wheel of torch_npu lacks a name that is used."),
    Rule("N602", "torch-npu-call", "A wheel of torch_npu takes other arguments."),
    Rule(
        "N603",
        "torch-npu-unknown",
        "What is used of torch_npu cannot be told, so nothing is checked there.",
        "warning",
    ),
    Rule("N604", "torch-npu-pin", "No torch_npu is pinned for an Ascend series."),
)
