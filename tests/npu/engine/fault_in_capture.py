"""Fails in an engine's first capture, and says whether names are what they were.

``python fault_in_capture.py FOLDER``, a folder for the model.
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


def main() -> None:
    """Make the model, let the attention of its graph fail, compare."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    folder = write_model(Path(sys.argv[1]), "llama")
    from vllm.v1.attention.backends.npu_attn import NPUAttentionImpl

    seen = []

    def fails(*args: Any, **kwargs: Any) -> None:
        seen.append(torch.cuda.Stream)
        raise ValueError("a fault in a capture")

    NPUAttentionImpl._attend_in_graph = fails
    before = names()
    # What ends the capture may fail in its turn.
    try:
        with engine(folder, "FULL_DECODE_ONLY"):
            pass
    except (ValueError, RuntimeError):
        assert seen == [torch.npu.Stream], seen
        assert names() == before
        print("restored", flush=True)
    # Not the interpreter's end, which would free what the allocator cannot.
    os._exit(0)


if __name__ == "__main__":
    main()
