"""Graphs whose host arguments each replay replaces, alone and without a model."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.compilation.acl_graph import ACLGraph, acl_graph
from vllm.config import VllmConfig
from vllm.forward_context import set_forward_context
from vllm.utils.npu_cuda_names import npu_stream


@pytest.fixture(autouse=True)
def nothing_captured() -> Iterator[None]:
    """Graphs of a test hold streams and memory until they are collected."""
    yield
    assert ACLGraph.capturing is None
    gc.collect()
    torch.npu.synchronize()


def captured(
    layers: list[str], x: Tensor, out: Tensor
) -> tuple[ACLGraph, dict[str, int]]:
    """out = the sum over layers of x times the number that the host has for each.

    The call of a layer is an operator with a scalar from the host, as attention's
    lengths are. Also how often each call was made.
    """
    graph = ACLGraph()
    calls = dict.fromkeys(layers, 0)
    parts = {name: torch.empty_like(x) for name in layers}

    def call_of(name: str) -> Any:
        def call(number: float) -> None:
            calls[name] += 1
            torch.mul(x, number, out=parts[name])

        return call

    stream = torch.npu.Stream()
    stream.wait_stream(torch.npu.current_stream())
    with npu_stream(stream), acl_graph(graph, stream=stream):
        assert ACLGraph.capturing is graph
        out.zero_()
        for name in layers:
            graph.capture_host_call(name, call_of(name), 1.0)
            out.add_(parts[name])
    return graph, calls


def replay(graph: ACLGraph, numbers: Any) -> None:
    with set_forward_context(numbers, VllmConfig()):
        graph.replay()
