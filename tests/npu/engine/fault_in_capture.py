"""Fails in an engine's first capture, and says whether names are what they were.

``python fault_in_capture.py FOLDER FAULT``: a folder for the model, and "raise",
"item", "synchronize" or "streams". Prints what was raised, and "restored". A process of
its own: torch_npu's allocator takes no other capture after one that did not end well.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from small_engine import engine, write_model


def names() -> list[Any]:
    """All of torch.cuda, and what worker and runner replace in vLLM's modules."""
    from vllm.v1.worker import gpu_model_runner, gpu_worker

    replaced = [gpu_model_runner.graph_capture, gpu_worker.kernel_warmup]
    return [*sorted(vars(torch.cuda).items(), key=lambda item: item[0]), *replaced]


def _few_streams() -> None:
    """The device has streams for two graphs of decode steps, and nobody says so."""
    import simulated.machine
    from vllm.compilation.acl_graph import StreamBudget

    simulated.machine.GRAPH_STREAMS = 2
    StreamBudget.is_limited = staticmethod(lambda: False)


def main() -> None:
    """Make the model, let the attention of its graph fail, compare."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    fault = sys.argv[2]
    folder = write_model(Path(sys.argv[1]), "llama")
    from vllm.v1.attention.backends.npu_attn import NPUAttentionImpl

    seen = []
    attend = NPUAttentionImpl._attend_in_graph

    def fails(self: Any, query: torch.Tensor, *others: Any) -> None:
        seen.append(torch.cuda.Stream)
        if fault == "raise":
            raise ValueError("a fault in a capture")
        if fault == "item":
            query.sum().item()
        if fault == "synchronize":
            torch.npu.synchronize()
        attend(self, query, *others)

    NPUAttentionImpl._attend_in_graph = fails
    before = names()
    if fault == "streams":
        _few_streams()
    # What ends the capture may fail in its turn.
    try:
        with engine(folder, "FULL_DECODE_ONLY"):
            pass
    except (ValueError, RuntimeError) as error:
        told: BaseException | None = error
        while told is not None:
            print(type(told).__name__, told)
            told = told.__cause__ or told.__context__
        assert set(seen) == {torch.npu.Stream}, seen
        assert names() == before
        print("restored", flush=True)
    # Not the interpreter's end, which would free what the allocator cannot.
    os._exit(0)


if __name__ == "__main__":
    main()
