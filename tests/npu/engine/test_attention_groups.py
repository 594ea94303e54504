"""Layers with and without a window, in groups of their own with their own blocks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from reference import Reference
from small_engine import LAYERS, VOCABULARY, engine, generate, runner, write_model

_numbers = random.Random(7)
# Beyond the window, a block of 128 and the 64 tokens of a step.
LENGTHS = (3, 150, 40, 126)
PROMPTS = [[_numbers.randrange(VOCABULARY) for _ in range(n)] for n in LENGTHS]
COUNTS = (9, 20, 5, 20)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(
        tmp_path_factory.mktemp("model"),
        "cwm",
        sliding_window=37,
        layer_types=["full_attention", "sliding_attention"] * (LAYERS // 2),
    )


@pytest.mark.parametrize("mode", ["eager", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"])
def test_tokens_are_greedy(model: Path, mode: str) -> None:
    with engine(model, mode, disable_hybrid_kv_cache_manager=False) as llm:
        groups = runner(llm).kv_cache_config.kv_cache_groups
        assert [len(group.layer_names) for group in groups] == [LAYERS // 2] * 2
        answers = generate(llm, PROMPTS, COUNTS)
    Reference(model, torch.float32).check(PROMPTS, answers)
