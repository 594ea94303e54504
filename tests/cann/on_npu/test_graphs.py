"""Capture, replay, task groups, memory, and what a capture refuses."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch


def captured(function: Callable[[], object], **options: object) -> tuple:
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options):
        result = function()
    return graph, result


def test_replay_runs_on_the_same_storage() -> None:
    x, w = torch.randn(3, 4, device="npu"), torch.randn(4, 4, device="npu")
    graph, y = captured(lambda: x.mm(w).relu())
    assert y.isnan().all().item(), "a capture computes nothing"
    for _ in range(3):
        x.copy_(torch.randn(3, 4))
        graph.replay()
        assert torch.equal(y.cpu(), (x.cpu() @ w.cpu()).relu())


def test_a_capture_under_a_default_device() -> None:
    with torch.device("npu"):
        x = torch.ones(3)
        graph, y = captured(lambda: x + torch.ones(3))
    graph.replay()
    assert y.tolist() == [2, 2, 2]


def test_replays_allocate_nothing() -> None:
    x = torch.randn(64, 64, device="npu")
    graph, y = captured(lambda: x.mm(x).relu())
    graph.replay()
    torch.npu.synchronize()
    before = torch.npu.memory_allocated(), torch.npu.memory_reserved()
    for _ in range(200):
        graph.replay()
    torch.npu.synchronize()
    assert (torch.npu.memory_allocated(), torch.npu.memory_reserved()) == before
    assert not y.isnan().any().item()


def test_graphs_of_one_pool_share_its_memory() -> None:
    x = torch.randn(64, 64, device="npu")

    def chain() -> None:
        y = x
        for _ in range(20):
            y = (y @ x).relu()

    def reserved(pool: object) -> int:
        before = torch.npu.memory_reserved()
        graphs.extend(captured(chain, pool=pool)[0] for _ in range(6))
        return torch.npu.memory_reserved() - before

    # The first capture of a stream allocates the generator's state on it as well.
    graphs: list = [captured(chain)[0]]
    shared = reserved(torch.npu.graph_pool_handle())
    # The allocator's small segments: 2 MiB each.
    assert shared == 2 << 20
    assert reserved(None) == 6 * shared


@pytest.mark.parametrize(
    ("read", "code"),
    [
        (lambda x: x.sum().item(), 107027),
        (lambda x: x.tolist(), 107027),
        (lambda x: x.cpu(), 107027),
        (lambda x: bool(x.sum() > 0), 107027),
        (lambda x: x[x > 0], 107027),
        (lambda x: x.nonzero(), 107027),
        (lambda x: x.repeat_interleave(x.long()), 107027),
        (lambda _: torch.npu.synchronize(), 107030),
        (lambda _: torch.npu.default_stream().synchronize(), 107030),
        (lambda _: torch.npu.current_stream().synchronize(), 107027),
    ],
    ids=[
        "item",
        "tolist",
        "cpu",
        "bool",
        "mask",
        "nonzero",
        "repeat",
        "device",
        "other_stream",
        "stream",
    ],
)
def test_a_capture_refuses_host_reads(read: Callable, code: int) -> None:
    x = torch.ones(3, device="npu")
    with pytest.raises(RuntimeError, match=str(code)):
        captured(lambda: read(x))
    assert x.sum().item() == 3


def test_memory_freed_under_a_graph_is_noticed() -> None:
    pool = torch.npu.graph_pool_handle()
    # More than the allocator may have cached: a segment of its own.
    x = torch.ones(64 << 20, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, pool=pool):
        x.add_(1)
    graph.replay()
    del x
    # The allocator gives cached memory back before it gives up.
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(64 << 30, dtype=torch.uint8, device="npu")
    with pytest.raises(RuntimeError, match=r"(?s)507011.*freed at.*torch\.empty"):
        graph.replay()


def test_a_side_stream_has_to_join_again() -> None:
    side, x = torch.npu.Stream(), torch.ones(3, device="npu")

    def fork(joins: bool) -> torch.Tensor:
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with torch.npu.stream(side):
            y = x * 2
        if joins:
            main.wait_stream(side)
        return y

    graph, y = captured(lambda: fork(True))
    graph.replay()
    assert y.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="107025"):
        captured(lambda: fork(False))


def test_each_replay_draws_new_random_numbers_and_a_seed_repeats_them() -> None:
    x = torch.empty(8, device="npu")
    graph, _ = captured(x.uniform_)

    def draws() -> list[list[float]]:
        torch.npu.manual_seed(3)
        drawn = []
        for _ in range(3):
            graph.replay()
            drawn.append(x.tolist())
        return drawn

    first = draws()
    assert first[0] != first[1] != first[2]
    assert draws() == first


def test_an_update_reaches_a_replay_that_waits_for_it() -> None:
    x, first, second = (torch.full((3,), value).npu() for value in (1.0, 2.0, 10.0))
    out, event = torch.empty(3, device="npu"), torch.npu.ExternalEvent()
    handles = []

    def body() -> tuple[torch.Tensor, torch.Tensor]:
        stream = torch.npu.current_stream()
        before = x + 100
        event.wait(stream)
        event.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        torch.mul(x, first, out=out)
        handles.append(torch.npu.graph_task_group_end(stream))
        return before, out + 1

    graph, (before, after) = captured(body)
    replays, updates = torch.npu.Stream(), torch.npu.Stream()
    for value, other in ((3, second), (4, first), (5, second)):
        x.fill_(value)
        last = after.cpu()
        with torch.npu.stream(replays):
            graph.replay()
        with torch.npu.stream(updates):
            torch.npu.graph_task_update_begin(updates, handles[0])
            torch.mul(x, other, out=out)
            torch.npu.graph_task_update_end(updates)
        # It has begun, and has the new argument, and is at its event.
        assert before.tolist() == [value + 100] * 3
        assert not replays.query()
        torch.testing.assert_close(after.cpu(), last, rtol=0, atol=0, equal_nan=True)
        event.record(updates)
        replays.synchronize()
        assert after.tolist() == [value * other[0].item() + 1] * 3


def test_an_update_must_call_what_was_captured(machine) -> None:
    x, y = torch.ones(2, 4, device="npu"), torch.ones(4, device="npu")
    handles = []

    def body() -> torch.Tensor:
        stream = torch.npu.current_stream()
        torch.npu.graph_task_group_begin(stream)
        out = torch.mul(x, y)
        handles.append(torch.npu.graph_task_group_end(stream))
        return out

    # Its groups end with the graph.
    graph, _ = captured(body)
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        torch.npu.graph_task_update_begin(stream, handles[0])
        with pytest.raises(RuntimeError, match=r"aten::mul was captured, aten::add"):
            torch.add(x, y)
        torch.npu.graph_task_update_end(stream)
        torch.npu.graph_task_update_begin(stream, handles[0])
        with pytest.raises(RuntimeError, match="107033"):
            torch.npu.graph_task_update_end(stream)
    assert not machine.updates
    graph.reset()


def grouped(out: torch.Tensor, x: torch.Tensor) -> tuple:
    """A graph of x * x, in a task group, with the group."""
    handles = []

    def body() -> None:
        stream = torch.npu.current_stream()
        torch.npu.graph_task_group_begin(stream)
        torch.mul(x, x, out=out)
        handles.append(torch.npu.graph_task_group_end(stream))

    return captured(body)[0], handles[0]


def test_an_update_of_a_graph_that_is_gone_is_refused() -> None:
    x, out = torch.ones(2, device="npu"), torch.empty(2, device="npu")
    graph, group = grouped(out, x)
    graph.reset()
    stream = torch.npu.Stream()
    with pytest.raises(RuntimeError, match=r"(?s)107033.*no task group"):
        torch.npu.graph_task_update_begin(stream, group)


def test_memory_of_the_last_update_must_stay_and_no_other(machine) -> None:
    x, out = torch.ones(2, device="npu"), torch.empty(2, device="npu")
    graph, group = grouped(out, x)
    others = [torch.full((2,), value, device="npu") for value in (2.0, 3.0)]
    for other in others:
        stream = torch.npu.Stream()
        with torch.npu.stream(stream):
            torch.npu.graph_task_update_begin(stream, group)
            torch.mul(x, other, out=out)
            torch.npu.graph_task_update_end(stream)
    # What the runtime is told when the allocator gives a segment back.
    machine.free(others[0].data_ptr(), 8)
    graph.replay()
    assert out.tolist() == [3, 3]
    machine.free(others[1].data_ptr(), 8)
    with pytest.raises(RuntimeError, match=r"(?s)507011.*freed at"):
        graph.replay()


def test_a_capture_leaves_no_integer_that_could_be_a_result() -> None:
    x = torch.zeros(3, dtype=torch.int32, device="npu")
    graph, y = captured(lambda: x + 1)
    assert y.tolist() == [2**31 - 1] * 3
    graph.replay()
    assert y.tolist() == [1, 1, 1]


def test_an_operator_without_a_body_stops_with_its_name() -> None:
    x = torch.randn(4, 8, device="npu")
    with pytest.raises(
        NotImplementedError, match="npu::npu_fast_gelu has no reference"
    ):
        torch.ops.npu.npu_fast_gelu(x)


def test_a_function_of_cann_without_a_body_ends_the_process_by_its_name() -> None:
    program = "from simulated.start import start; start(); import ctypes; "
    program += "ctypes.CDLL('libge_runner.so').aclopCreateAttr()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGABRT
    assert "simulated CANN: aclopCreateAttr has no body here" in done.stderr
