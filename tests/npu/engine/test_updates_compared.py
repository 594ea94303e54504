"""A second opinion on graph parameters: torch_npu's own update of a graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_engine import LAYERS, SIZES, engine, generate, graphs_of, write_model

PROMPTS = [[3, 1, 4], [1, 5] * 50, [5, 9, 2, 6, 5], [3], [8] * 20]
COUNTS = [9, 4, 7, 5, 6]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), "llama")


def _records(llm: Any) -> list[int]:
    """How many calls torch_npu noted in each graph."""
    return [
        len(entry.cudagraph.graph_dispatch_mode.graph_dispatch_records)
        for entry in graphs_of(llm).values()
    ]


def test_both_ways_give_the_same_tokens(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.compilation.acl_graph import ACLGraph, _HostCall

    with engine(model, "FULL_DECODE_ONLY") as llm:
        explicit = generate(llm, PROMPTS, COUNTS)
        assert _records(llm) == [0] * len(SIZES)
    updates = []

    def capture(
        self: ACLGraph, layer_name: str, call: Callable[[Any], None], metadata: Any
    ) -> None:
        with self.graph_dispatch_mode:
            call(metadata)
        self._host_calls.append(_HostCall(layer_name, call, None, None))

    def update(self: ACLGraph, metadata: dict[str, Any]) -> None:
        steps = [metadata[call.layer_name] for call in self._host_calls]
        updates.append(len(steps))
        self.graph_dispatch_mode.update_capture_record(
            [
                {
                    "actual_seq_lengths": step.query_ends,
                    "actual_seq_lengths_kv": step.seq_lens,
                }
                for step in steps
            ]
        )

    monkeypatch.setattr(ACLGraph, "capture_host_call", capture)
    monkeypatch.setattr(ACLGraph, "_update", update)
    with engine(model, "FULL_DECODE_ONLY") as llm:
        assert generate(llm, PROMPTS, COUNTS) == explicit
        assert _records(llm) == [LAYERS] * len(SIZES)
    assert set(updates) == {LAYERS}


def test_torch_npu_s_own_capture_sees_no_attention_of_vllm(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It notes operators as they are dispatched; vLLM's attention is one for it."""
    from vllm.compilation.acl_graph import ACLGraph

    def plain(_: ACLGraph, __: str, call: Callable[[Any], None], step: Any) -> None:
        call(step)

    monkeypatch.setattr(ACLGraph, "capture_host_call", plain)
    noting = functools.partial(torch.npu.graph, auto_dispatch_capture=True)
    monkeypatch.setattr(torch.npu, "graph", noting)
    with engine(model, "FULL_DECODE_ONLY") as llm:
        assert _records(llm) == [0] * len(SIZES)
