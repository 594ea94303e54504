"""Graphs whose calls each replay makes again, alone and without a model."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.compilation.acl_graph import ACLGraph, StreamBudget, acl_graph, keep_sizes
from vllm.config import get_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.utils.npu_cuda_names import npu_stream

SIZE = 4
LAYERS = ("first", "second", "third")


@pytest.fixture(autouse=True)
def nothing_captured() -> Iterator[None]:
    """Graphs of a test hold streams and memory until they are collected."""
    yield
    assert ACLGraph.capturing is None
    torch.npu.synchronize()
    gc.collect()


def number(value: float) -> Tensor:
    """What the metadata of a layer is here: what it multiplies by."""
    return torch.full((SIZE,), value).npu()


class Model:
    """out = x times each layer's number, added up, as a graph; calls are counted."""

    def __init__(self, layers: tuple[str, ...] = LAYERS) -> None:
        self.x, self.out = number(1), number(0)
        self.parts = {name: number(0) for name in layers}
        self.calls = dict.fromkeys(layers, 0)
        self.graph = ACLGraph()
        unused = number(1)
        stream = torch.npu.Stream()
        stream.wait_stream(torch.npu.current_stream())
        with npu_stream(stream), acl_graph(self.graph, stream=stream):
            assert ACLGraph.capturing is self.graph
            self.out.copy_(self.x)
            for name in layers:
                self.graph.capture_host_call(name, self._call_of(name), unused)
                self.out.add_(self.parts[name])

    def _call_of(self, name: str) -> Callable[[Tensor], None]:
        def call(factor: Tensor) -> None:
            self.calls[name] += 1
            torch.mul(self.x, factor, out=self.parts[name])

        return call

    def replay(self, metadata: Any) -> None:
        with set_forward_context(metadata, get_current_vllm_config()):
            self.graph.replay()


def test_each_replay_has_the_numbers_of_its_step() -> None:
    model = Model()
    assert set(model.calls.values()) == {1}
    for step in range(1, 5):
        values = [step, 10 * step, 100 * step]
        numbers = map(number, values)
        model.x.fill_(step)
        model.replay(dict(zip(LAYERS, numbers, strict=True)))
        assert model.out.tolist() == [step * (1 + sum(values))] * SIZE
        # Once a step, after the capture.
        assert set(model.calls.values()) == {1 + step}


def test_replays_one_after_the_other_without_a_look_between() -> None:
    """None overtakes the one before, whatever is still waiting."""
    model = Model()
    copies = []
    for step in range(1, 6):
        model.x.fill_(step)
        model.replay({name: number(step) for name in LAYERS})
        copies.append(model.out.clone())
    found = [copy[0].item() for copy in copies]
    assert found == [step * (1 + 3 * step) for step in range(1, 6)]


def test_a_replay_waits_for_the_one_before() -> None:
    """Else that one, which is held up here, would have the numbers of this one."""
    model = Model()
    model.replay({name: number(1) for name in LAYERS})
    numbers = {name: number(2) for name in LAYERS}
    torch.npu.synchronize()
    # Held up by what nobody records, which the simulated runtime tells who waits.
    torch.npu.ExternalEvent().wait(torch.npu.current_stream())
    model.replay(numbers)
    with pytest.raises(RuntimeError, match=r"(?s)aclrtSynchronizeEvent.*deadlock"):
        model.replay(numbers)


def test_two_graphs_take_turns() -> None:
    models = [Model(), Model(("second",))]
    for step in (2, 3):
        for model in models:
            model.replay({name: number(step) for name in LAYERS})
        wanted = [[1 + 3 * step] * SIZE, [1 + step] * SIZE]
        assert [model.out.tolist() for model in models] == wanted


def test_a_graph_without_such_calls_needs_no_metadata() -> None:
    model = Model(())
    model.x.fill_(7)
    # A piece of a model is replayed where there is none.
    model.graph.replay()
    assert model.out.tolist() == [7] * SIZE


def test_a_replay_needs_the_metadata_of_each_layer() -> None:
    model = Model(("first",))
    with pytest.raises(AssertionError):
        model.replay(None)
    model.replay({"first": number(2)})
    assert model.out.tolist() == [3] * SIZE


@pytest.mark.parametrize("missing", LAYERS)
def test_after_a_fault_between_launch_and_update_the_device_goes_on(
    missing: str,
) -> None:
    model = Model()
    metadata = {name: number(2) for name in LAYERS if name != missing}
    with pytest.raises(KeyError, match=missing):
        model.replay(metadata)
    # Without a deadlock, which the simulated runtime would report.
    torch.npu.synchronize()
    for factor in (3, 4):
        model.replay({name: number(factor) for name in LAYERS})
        assert model.out.tolist() == [1 + len(LAYERS) * factor] * SIZE


class Fault(RuntimeError):
    """What a capture ends with."""


@pytest.fixture
def failing_graph(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Let torch_npu's graph fail: its allocator takes no capture after a real fault."""

    def fail(text: str) -> None:
        class Graph:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                pass

            def __enter__(self) -> None:
                pass

            def __exit__(self, *args: Any) -> None:
                raise Fault(text)

        monkeypatch.setattr(torch.npu, "graph", Graph)

    return fail


def test_no_streams_left_says_what_to_do(failing_graph: Callable[[str], Any]) -> None:
    # As the runtime of CANN says it: ACL_ERROR_RT_NO_STREAM_RESOURCE.
    failing_graph("The Inner error is reported: error code is 207008")
    no_streams = pytest.raises(RuntimeError, match="no streams left")
    with no_streams as raised, acl_graph(ACLGraph()):
        pass
    assert "cudagraph_capture_sizes" in str(raised.value)
    assert "FULL_DECODE_ONLY" in str(raised.value)
    assert isinstance(raised.value.__cause__, Fault)


def test_other_faults_pass_as_they_are(failing_graph: Callable[[str], Any]) -> None:
    failing_graph("error code is 107027")
    with pytest.raises(Fault, match="107027"), acl_graph(ACLGraph()):
        pass


@pytest.mark.parametrize("groups", [0, 1, 2])
@pytest.mark.parametrize("layers", [1, 27, 61])
@pytest.mark.parametrize(("is_piecewise", "is_full"), [(1, 0), (0, 1), (1, 1)])
def test_as_many_sizes_as_the_streams_are_enough_for(
    layers: int, groups: int, is_piecewise: bool, is_full: bool
) -> None:
    """One more would take more than there are; counted by adding graphs up."""
    budget = StreamBudget(layers, groups)
    sizes = budget.sizes(bool(is_piecewise), bool(is_full))

    def streams(count: int) -> int:
        graphs = count * ((layers + 1 if is_piecewise else 0) + (1 if is_full else 0))
        return graphs + groups * (40 + 2 * graphs)

    assert streams(sizes) <= 2048 - 248 < streams(sizes + 1)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_sizes_that_are_kept(count: int) -> None:
    sizes = [1, 2, 4, *range(8, 513, 8)]
    kept = keep_sizes(sizes, count)
    assert len(kept) == len(set(kept)) == count
    assert kept == sorted(kept)
    assert set(kept) <= set(sizes)
    assert kept[-1] == 512
    # Evenly spread, from the first one on: gaps differ by one at most.
    places = [-1, *(sizes.index(size) for size in kept)]
    gaps = [b - a for a, b in pairwise(places)]
    assert max(gaps) - min(gaps) <= 1
