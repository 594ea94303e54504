"""Paged attention that allocates its workspace in an update of a replay deadlocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

REQUESTS, HEADS, KV_HEADS, SIZE, BLOCK, COLUMNS = 3, 4, 2, 16, 8, 2


def arguments() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(5)
    blocks = (REQUESTS * COLUMNS, BLOCK, KV_HEADS, SIZE)
    query = torch.randn(REQUESTS, HEADS, SIZE, generator=generator).npu()
    return {
        "query": query,
        "key_cache": torch.randn(blocks, generator=generator).npu(),
        "value_cache": torch.randn(blocks, generator=generator).npu(),
        "num_kv_heads": KV_HEADS,
        "num_heads": HEADS,
        "scale_value": SIZE**-0.5,
        "block_table": torch.arange(REQUESTS * COLUMNS).view(REQUESTS, -1).int().npu(),
        "out": torch.zeros_like(query),
    }


def run(call: dict[str, Any], lengths: list[int], workspace: Any) -> None:
    # The lengths are a host tensor, which a capture bakes in.
    on_host = torch.tensor(lengths, dtype=torch.int32)
    torch_npu._npu_paged_attention(**call, context_lens=on_host, workspace=workspace)


def replay_with(call: dict[str, Any], lengths: list[int], workspace: Any) -> None:
    event, graph = torch.npu.ExternalEvent(), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        event.wait(stream)
        event.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        run(call, [1] * REQUESTS, workspace)
        handle = torch.npu.graph_task_group_end(stream)
    graph.replay()
    updating = torch.npu.Stream()
    with torch.npu.stream(updating):
        torch.npu.graph_task_update_begin(updating, handle)
        try:
            run(call, lengths, workspace)
        finally:
            torch.npu.graph_task_update_end(updating)
        event.record(updating)
    torch.npu.synchronize()


def test_its_own_workspace_is_a_deadlock(machine) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)deadlock.*in replay_with") as error:
        replay_with(arguments(), [16, 9, 1], None)
    machine.updates.clear()
    told = f"{error.value} {error.value.__context__}"
    assert "_npu_paged_attention allocates its workspace" in told


def test_a_workspace_computed_before_is_the_cure() -> None:
    call, lengths = arguments(), [16, 9, 1]
    run(call, lengths, None)
    eager = call["out"].cpu().clone()
    call["out"].zero_()
    longest = torch.full((REQUESTS,), BLOCK * COLUMNS, dtype=torch.int32)
    workspace = torch_npu._npu_paged_attention_get_workspace(
        **call, context_lens=longest
    )
    replay_with(call, lengths, workspace)
    assert torch.equal(call["out"].cpu(), eager)
