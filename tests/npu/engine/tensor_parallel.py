"""Greedy tokens of an engine on several devices, each with a process of its own.

``python tensor_parallel.py FOLDER MODE SIZE DTYPE TRACES`` with SIMULATED_CANN_DEVICES
set. Prints the tokens as JSON; each rank traces its captures to the folder TRACES.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from small_engine import engine, generate

PROMPTS = [[3, 1, 4], [1, 5] * 50, [5, 9, 2, 6, 5], [3], [8] * 20]
COUNTS = [9, 4, 7, 5, 6]


def main() -> None:
    """Generate, and print."""
    folder, mode, size, dtype, traces = sys.argv[1:]
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    with engine(
        Path(folder),
        mode,
        tensor_parallel_size=int(size),
        dtype=dtype,
        distributed_executor_backend="mp",
        profiler_config={
            "profiler": "torch",
            "torch_profiler_dir": traces,
            "torch_profiler_with_stack": False,
            "capture_torch_profiler": True,
            "capture_torch_profiler_ranks": "all",
        },
    ) as llm:
        print(json.dumps(generate(llm, PROMPTS, COUNTS)), flush=True)


if __name__ == "__main__":
    main()
