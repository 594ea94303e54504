"""Streams, events and values, and what a wait without a record ends in."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch


def test_import_to_first_tensor_takes_seconds() -> None:
    """Three times as long as torch's own import, or 6 s, whichever is more."""
    program = "from simulated.start import start; start(); import torch; "
    program += "assert torch.ones(3, device='npu').sum().item() == 3"
    plain = "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'; import torch"
    spent = {program: 600.0, plain: 600.0}
    for code in (program, plain) * 3:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        spent[code] = min(spent[code], time.perf_counter() - began)
    print(f"{spent[program]:.1f} s, torch alone {spent[plain]:.1f} s")
    assert spent[program] < max(6, 3 * spent[plain])


def test_a_wait_holds_its_stream_and_no_other() -> None:
    stream, event = torch.npu.Stream(), torch.npu.ExternalEvent()
    x = torch.ones(4, device="npu")
    with torch.npu.stream(stream):
        event.wait(stream)
        held = x + 1
    assert torch.equal((x + 2).cpu(), torch.full((4,), 3.0))
    assert not stream.query()
    assert held.isnan().all().item()
    event.record(torch.npu.current_stream())
    stream.synchronize()
    assert torch.equal(held.cpu(), torch.full((4,), 2.0))


def test_a_record_of_another_thread_ends_a_wait() -> None:
    stream, event = torch.npu.Stream(), torch.npu.ExternalEvent()
    with torch.npu.stream(stream):
        event.wait(stream)

    def record() -> None:
        time.sleep(0.1)
        event.record(torch.npu.default_stream())

    thread = threading.Thread(target=record)
    thread.start()
    stream.synchronize()
    thread.join()


def test_a_wait_without_a_record_is_a_deadlock_within_a_second() -> None:
    stream, event = torch.npu.Stream(), torch.npu.ExternalEvent()

    def waits_for_it() -> None:
        event.wait(stream)

    def reads_it() -> None:
        stream.synchronize()

    waits_for_it()
    began = time.perf_counter()
    with pytest.raises(RuntimeError, match="507046") as error:
        reads_it()
    assert time.perf_counter() - began < 1
    # Both stacks: of the wait, and of who waits for the stream.
    assert "deadlock" in str(error.value)
    assert "in waits_for_it" in str(error.value)
    assert "in reads_it" in str(error.value)


def test_an_event_orders_two_streams() -> None:
    first, second = torch.npu.Stream(), torch.npu.Stream()
    gate, event = torch.npu.ExternalEvent(), torch.npu.Event()
    x = torch.zeros(2, device="npu")
    with torch.npu.stream(first):
        gate.wait(first)
        x.add_(1)
        event.record(first)
    with torch.npu.stream(second):
        second.wait_event(event)
        x.mul_(10)
    assert not event.query()
    assert x.tolist() == [0, 0]
    gate.record(torch.npu.default_stream())
    torch.npu.synchronize()
    assert x.tolist() == [10, 10]


def test_a_task_that_fails_later_is_told_by_the_next_wait() -> None:
    stream, gate = torch.npu.Stream(), torch.npu.ExternalEvent()
    x = torch.zeros(2, dtype=torch.int64, device="npu")
    with torch.npu.stream(stream):
        gate.wait(stream)
        torch.embedding(torch.ones(3, 2, device="npu"), x + 7)
    gate.record(torch.npu.default_stream())
    with pytest.raises(RuntimeError, match="507015"):
        stream.synchronize()


def test_streams_run_out_as_on_the_device(machine) -> None:
    graphs, x = [], torch.ones(2, device="npu")
    used = sum(len(graph.streams) for graph in machine.graphs.values())
    for _ in range(1800 - used):
        graphs.append(torch.npu.NPUGraph())
        with torch.npu.graph(graphs[-1]):
            x.add_(1)
    with (
        pytest.raises(RuntimeError, match="207008"),
        torch.npu.graph(torch.npu.NPUGraph()),
    ):
        x.add_(1)
    graphs.pop().reset()
    with torch.npu.graph(torch.npu.NPUGraph()):
        x.add_(1)
