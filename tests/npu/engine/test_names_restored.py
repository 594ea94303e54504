"""What the runner sets for a while is what it was, also after an exception."""

from __future__ import annotations

from pathlib import Path

import torch
from fault_in_capture import names
from small_engine import engine, write_model


def test_names_are_the_same_after_captures(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "llama")
    before = names()
    with engine(folder, "FULL_DECODE_ONLY"):
        assert names() == before


def test_scopes_nest_and_may_overlap() -> None:
    from vllm.utils.npu_cuda_names import cuda_names_mean_npu

    before = names()
    first, second = cuda_names_mean_npu(), cuda_names_mean_npu()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.cuda.Stream is torch.npu.Stream
    second.__exit__(None, None, None)
    assert names() == before
