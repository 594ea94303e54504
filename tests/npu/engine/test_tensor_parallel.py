"""Two devices: greedy tokens, collectives in graphs, and traces by each worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from reference import Reference
from small_engine import SIZES, write_model
from tensor_parallel import COUNTS, PROMPTS


def _tokens(folder: Path, mode: str, dtype: str, traces: Path) -> list[list[int]]:
    program = Path(__file__).with_name("tensor_parallel.py")
    words = [str(folder), mode, "2", dtype, str(traces)]
    command = [sys.executable, str(program), *words]
    environment = {**os.environ, "SIMULATED_CANN_DEVICES": "2"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("[[")]
    return json.loads(lines[-1])


# FULL becomes FULL_AND_PIECEWISE.
@pytest.mark.parametrize(
    ("mode", "dtype", "captured"),
    [
        ("eager", "bfloat16", ()),
        ("PIECEWISE", "float32", ("PIECEWISE",)),
        ("FULL_AND_PIECEWISE", "float32", ("FULL", "PIECEWISE")),
        ("FULL_DECODE_ONLY", "bfloat16", ("FULL",)),
    ],
)
def test_tokens_and_traces(
    tmp_path: Path, mode: str, dtype: str, captured: tuple[str, ...]
) -> None:
    folder = write_model(tmp_path / "model", "qwen3", num_key_value_heads=4)
    tokens = _tokens(folder, mode, dtype, tmp_path / "traces")
    assert [len(answer) for answer in tokens] == COUNTS
    Reference(folder, getattr(torch, dtype)).check(PROMPTS, tokens)
    # Workers are daemons, which torch_npu lets parse no profile.
    for rank in ("dp0_pp0_tp0", "dp0_pp0_tp1") if captured else ():
        there = {
            file.name for file in (tmp_path / f"traces/capture_traces/{rank}").iterdir()
        }
        names = {f"{rank}.capture_{n}_{m}.json.gz" for n in SIZES for m in captured}
        assert there == {*names, "execution_details.json"}
