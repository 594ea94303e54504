"""Greedy tokens of every graph mode, over models, dtypes and ways of scheduling.

Each case has its value of every axis, and every case runs in every mode; so each value
is seen with each mode. All cases chunk prompts, and requests join and leave. vLLM
turns FULL into another mode here: the attention captures decode steps alone.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Reference
from small_engine import (
    LAYERS,
    MODES,
    VOCABULARY,
    count_preemptions,
    engine,
    outputs_of,
    write_model,
)

WINDOW = 37


@dataclass(frozen=True)
class Case:
    """A model, and settings of the engine."""

    kind: str
    dtype: str
    model: dict[str, Any]
    caches_prefixes: bool
    is_async: bool
    # With the null block; all but one case have enough of them.
    blocks: int = 64

    @property
    def preempts(self) -> bool:
        return self.blocks < 64


CASES = {
    "llama": Case(
        "llama",
        "bfloat16",
        {"num_key_value_heads": 2},
        caches_prefixes=True,
        is_async=True,
    ),
    "qwen3_preempted": Case(
        "qwen3",
        "bfloat16",
        {"num_key_value_heads": 1, "tie_word_embeddings": True},
        caches_prefixes=False,
        is_async=False,
        blocks=7,
    ),
    "qwen3_windows": Case(
        "qwen3",
        "float32",
        {
            "num_key_value_heads": 8,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "max_window_layers": LAYERS,
            "layer_types": ["sliding_attention"] * LAYERS,
            "tie_word_embeddings": True,
        },
        caches_prefixes=False,
        is_async=True,
        blocks=7,
    ),
    "llama_mixed_windows": Case(
        "cwm",
        "float32",
        {
            "num_key_value_heads": 4,
            "sliding_window": WINDOW,
            "layer_types": ["full_attention", "sliding_attention"] * (LAYERS // 2),
        },
        caches_prefixes=True,
        is_async=False,
    ),
}

_numbers = random.Random(5)
# Longer than a block of 128 and than the 64 tokens of a step; more than 4 requests.
LENGTHS = (3, 150, 1, 40, 127, 125, 126, 70)
PROMPTS = [[_numbers.randrange(VOCABULARY) for _ in range(n)] for n in LENGTHS]
# The first block of this one is that of another, which has been seen by then.
PROMPTS.append(PROMPTS[1][:140] + PROMPTS[0])
COUNTS = (9, 20, 5, 20, 14, 12, 13, 7, 6)


@dataclass(frozen=True)
class Outcome:
    tokens: list[list[int]]
    cached: list[int]
    preempted: list[str]


class Runs:
    """What each case gave in each mode; an engine runs when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = functools.cache(self._model)
        self.reference = functools.cache(self._reference)
        self.outcome = functools.cache(self._outcome)

    def _model(self, name: str) -> Path:
        case = CASES[name]
        return write_model(self.folder / name, case.kind, **case.model)

    def _reference(self, name: str) -> Reference:
        return Reference(self.model(name), getattr(torch, CASES[name].dtype))

    def _outcome(self, name: str, mode: str) -> Outcome:
        case = CASES[name]
        with engine(
            self.model(name),
            mode,
            dtype=case.dtype,
            enable_prefix_caching=case.caches_prefixes,
            async_scheduling=case.is_async,
            num_gpu_blocks_override=case.blocks,
        ) as llm:
            preempted = count_preemptions(llm)
            outputs = outputs_of(llm, PROMPTS, COUNTS)
        return Outcome(
            tokens=[list(output.outputs[0].token_ids) for output in outputs],
            cached=[output.num_cached_tokens for output in outputs],
            preempted=preempted,
        )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_tokens_are_greedy(runs: Runs, name: str, mode: str) -> None:
    outcome = runs.outcome(name, mode)
    runs.reference(name).check(PROMPTS, outcome.tokens)
    assert outcome.tokens == runs.outcome(name, "eager").tokens


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_prefixes_are_found_and_requests_preempted(
    runs: Runs, name: str, mode: str
) -> None:
    outcome, case = runs.outcome(name, mode), CASES[name]
    assert outcome.cached[-1] == (128 if case.caches_prefixes else 0)
    assert bool(outcome.preempted) == case.preempts


@pytest.mark.parametrize("name", CASES)
def test_answers_vary_and_others_are_refused(runs: Runs, name: str) -> None:
    tokens = runs.outcome(name, "eager").tokens
    assert len({token for answer in tokens for token in answer}) > 40
    reference = runs.reference(name)
    for i in range(len(PROMPTS)):
        others = [list(answer) for answer in tokens]
        # Of two neighbours, so that what follows is right for what is before it.
        others[i][-1] = (others[i][-1] + 1) % VOCABULARY
        with pytest.raises(AssertionError, match=f"request {i}"):
            reference.check(PROMPTS, others)


def test_all_values_are_seen() -> None:
    cases = CASES.values()
    heads = {case.model["num_key_value_heads"] for case in cases}
    assert heads == {1, 2, 4, 8}
    layers = {len(set(case.model.get("layer_types", ()))) for case in cases}
    assert layers == {0, 1, 2}
    assert {case.model.get("tie_word_embeddings", False) for case in cases} == {0, 1}
    for axis in ("caches_prefixes", "is_async", "preempts"):
        assert {getattr(case, axis) for case in cases} == {True, False}, axis
    pairs = {(case.dtype, case.is_async) for case in cases}
    assert len(pairs) == 4
