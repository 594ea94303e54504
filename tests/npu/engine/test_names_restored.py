"""What the runner sets for a while is what it was, also after an exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_engine import engine, write_model

NAMES = (
    "CUDAGraph",
    "Event",
    "Stream",
    "current_stream",
    "default_stream",
    "graph",
    "graph_pool_handle",
    "mem_get_info",
    "stream",
    "synchronize",
)


def _names() -> list[Any]:
    from vllm.v1.worker import gpu_model_runner, gpu_worker

    named = [getattr(torch.cuda, name) for name in NAMES]
    return [*named, gpu_model_runner.graph_capture, gpu_worker.kernel_warmup]


def test_names_are_the_same_after_captures(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "llama")
    before = _names()
    with engine(folder, "FULL_DECODE_ONLY"):
        assert _names() == before


def test_scopes_nest_and_may_overlap() -> None:
    from vllm.utils.npu_cuda_names import cuda_names_mean_npu

    before = _names()
    first, second = cuda_names_mean_npu(), cuda_names_mean_npu()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.cuda.Stream is torch.npu.Stream
    second.__exit__(None, None, None)
    assert _names() == before


def test_names_are_the_same_after_a_fault_in_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.attention.backends.npu_attn import NPUAttentionImpl

    seen = []

    def fails(*args: Any, **kwargs: Any) -> None:
        seen.append(torch.cuda.Stream)
        raise ValueError("a fault in a capture")

    monkeypatch.setattr(NPUAttentionImpl, "_attend_in_graph", fails)
    before = _names()
    # What ends the capture may fail in its turn, with the fault as its context.
    with (
        pytest.raises((ValueError, RuntimeError)),
        engine(write_model(tmp_path, "llama"), "FULL_DECODE_ONLY"),
    ):
        pass
    assert seen == [torch.npu.Stream]
    assert _names() == before
