"""What a decode step costs the host, and that graphs are stale without updates."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Reference
from small_engine import (
    LAYERS,
    SIZES,
    VOCABULARY,
    engine,
    generate,
    graphs_of,
    runner,
    write_model,
)

_numbers = random.Random(5)
# Longer than a block of 128 and than the 64 tokens of a step; more than 4 requests.
LENGTHS = (3, 150, 1, 40, 127, 70)
PROMPTS = [[_numbers.randrange(VOCABULARY) for _ in range(n)] for n in LENGTHS]
COUNTS = (9, 12, 5, 20, 4, 7)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama"), "llama")


def test_one_graph_a_decode_size_and_stale_without_updates(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.compilation.acl_graph import ACLGraph

    reference = Reference(llama, torch.float32)
    with engine(llama, "FULL_DECODE_ONLY") as llm:
        assert sorted(key.num_tokens for key in graphs_of(llm)) == list(SIZES)
        answers = generate(llm, PROMPTS, COUNTS)
        reference.check(PROMPTS, answers)

        stream = torch.npu.Stream()

        def only_record(graph: Any, metadata: Any) -> None:
            for call in graph._host_calls:
                call.event.record(stream)

        with monkeypatch.context() as patch:
            patch.setattr(ACLGraph, "_update", only_record)
            assert generate(llm, PROMPTS, COUNTS) != answers
        assert generate(llm, PROMPTS, COUNTS) == answers


def _launches_of_a_step(llama: Path, mode: str, machine: Any) -> Counter[str]:
    """What the host launches for one decode step of the model, by kind."""
    steps: list[Counter[str]] = []
    with engine(llama, mode, async_scheduling=False) as llm:
        execute = runner(llm)._model_forward

        def counted(*args: Any, **kwargs: Any) -> Any:
            before = machine.launches.copy()
            output = execute(*args, **kwargs)
            steps.append(machine.launches - before)
            return output

        runner(llm)._model_forward = counted
        generate(llm, [PROMPTS[0]], [9])
    # The first step is the prompt's; the first replay waits for none before it.
    first, *others = steps[1:]
    assert all(step == first for step in others), steps
    return first


def test_launches_of_a_decode_step(llama: Path, machine: Any) -> None:
    eager, piecewise, full = (
        _launches_of_a_step(llama, mode, machine)
        for mode in ("eager", "PIECEWISE", "FULL_DECODE_ONLY")
    )
    print(f"launches a decode step, {LAYERS} layers: {eager} {piecewise} {full}")
    # An event for each update, and one that says that the replay is over.
    assert full == {"graph": 1, "update": LAYERS, "event": LAYERS + 1}
    assert eager.keys() == {"task"}
    assert piecewise["graph"] == LAYERS + 1
    eager_work, piecewise_work, full_work = (
        launches.total() - launches["event"] for launches in (eager, piecewise, full)
    )
    assert eager_work >= 10 * full_work
    assert full_work < piecewise_work < eager_work
