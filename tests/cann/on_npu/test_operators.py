"""Operators on npu tensors: where their arguments are, and what a capture keeps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch_npu


def npu(*values: float, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device="npu")


def captured(function: Callable[[], object]) -> tuple:
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = function()
    return graph, result


@pytest.mark.parametrize(
    "call",
    [
        lambda x, h: x + h,
        lambda x, h: x.add_(h),
        lambda x, h: h.add_(x),
        lambda x, h: x.mm(h),
        lambda x, h: torch.cat([x, h]),
        lambda x, h: torch.where(x > 0, x, h),
        lambda x, h: torch.embedding(h, x.long()),
        lambda x, h: x.index_select(0, h[0].long()),
        lambda x, h: torch.add(x, x, out=h),
        lambda x, h: torch_npu.npu_rms_norm(x, h[0]),
        lambda x, _: torch.tensor(1.0).add_(x.sum()),
    ],
)
@pytest.mark.parametrize("captures", [False, True])
def test_host_memory_is_refused(call: Callable, captures: bool) -> None:
    x, host = torch.ones(2, 2, device="npu"), torch.ones(2, 2)
    with pytest.raises(RuntimeError, match=r"same device: argument \w+ of \w+::"):
        captured(lambda: call(x, host)) if captures else call(x, host)


def test_numbers_and_indices_of_the_host_are_taken() -> None:
    x = npu(1.0, 2.0)
    assert (x * torch.tensor(3.0)).tolist() == [3, 6]
    assert (torch.tensor(3.0) - x).tolist() == [2, 1]
    assert x[torch.tensor([1, 0])].tolist() == [2, 1]
    x[torch.tensor([1])] = 5
    assert x.tolist() == [1, 5]


def test_a_graph_keeps_the_numbers_of_its_capture_and_copies_anew() -> None:
    number, pinned = torch.tensor(2.0), torch.ones(2).pin_memory()
    x = npu(1.0, 1.0)

    def body() -> torch.Tensor:
        x.copy_(pinned, non_blocking=True)
        return x * number

    graph, y = captured(body)
    number.fill_(100)
    pinned.fill_(3)
    graph.replay()
    assert y.tolist() == [6, 6]


def test_a_graph_keeps_the_lengths_on_the_host_of_its_capture() -> None:
    cache = torch.arange(16.0).view(2, 4, 1, 2).npu()
    lengths, out = torch.tensor([2], dtype=torch.int32), torch.empty(1, 1, 2).npu()
    call = {
        "query": torch.zeros(1, 1, 2, device="npu"),
        "key_cache": cache,
        "value_cache": cache,
        "num_kv_heads": 1,
        "num_heads": 1,
        "scale_value": 1.0,
        "block_table": npu(0, 1, dtype=torch.int32).view(1, 2),
        "out": out,
    }
    size = torch_npu._npu_paged_attention_get_workspace(**call, context_lens=lengths)
    graph, _ = captured(
        lambda: torch_npu._npu_paged_attention(
            **call, context_lens=lengths, workspace=size
        )
    )
    lengths.fill_(8)
    graph.replay()
    # The mean of the first two rows, not of all eight.
    assert out.flatten().tolist() == [1, 2]


@pytest.mark.parametrize("captures", [False, True])
def test_an_out_argument_of_another_shape_is_resized(captures: bool) -> None:
    x, out = npu(1.0, 2.0), torch.empty(0, device="npu")
    if captures:
        graph, _ = captured(lambda: torch.add(x, x, out=out))
        graph.replay()
    else:
        torch.add(x, x, out=out)
    assert out.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x.add_(torch.ones(4, device="npu")), "size"),
        (lambda x: x.add_(torch.ones(3, device="npu")), "Promotion|can't be cast"),
    ],
)
def test_a_capture_refuses_what_its_replays_would(call: Callable, error: str) -> None:
    x = npu(1, 2, 3)
    with pytest.raises(RuntimeError, match=error):
        captured(lambda: call(x))


def test_operators_without_a_generator_draw_from_the_seed() -> None:
    x = torch.ones(100, device="npu")

    def drawn(seed: int) -> list[float]:
        torch.npu.manual_seed(seed)
        return torch.nn.functional.dropout(x, 0.5).tolist()

    before = torch.get_rng_state()
    first = drawn(1)
    assert drawn(2) != first
    assert drawn(1) == first
    assert torch.equal(torch.get_rng_state(), before)


def test_what_ends_the_process_says_where() -> None:
    program = "from simulated.start import start; start(); import ctypes\n"
    program += "def caller():\n ctypes.CDLL('libge_runner.so').aclopCreateAttr()\n"
    program += "caller()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "in caller" in done.stderr
