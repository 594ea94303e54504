"""Greedy tokens of two devices, whose collectives are in the graphs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from reference import Reference
from small_engine import write_model
from tensor_parallel import COUNTS, PROMPTS


def _tokens(folder: Path, mode: str, dtype: str) -> list[list[int]]:
    program = Path(__file__).with_name("tensor_parallel.py")
    command = [sys.executable, str(program), str(folder), mode, "2", dtype]
    environment = {**os.environ, "SIMULATED_CANN_DEVICES": "2"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("[[")]
    return json.loads(lines[-1])


# Each one starts three processes, which costs most of its time. These two capture
# pieces and whole models; the others are not tried on two devices.
@pytest.mark.parametrize(
    ("mode", "dtype"),
    [("FULL_AND_PIECEWISE", "float32"), ("FULL_DECODE_ONLY", "bfloat16")],
)
def test_tokens_are_greedy(tmp_path: Path, mode: str, dtype: str) -> None:
    folder = write_model(tmp_path, "qwen3", num_key_value_heads=4)
    tokens = _tokens(folder, mode, dtype)
    assert [len(answer) for answer in tokens] == COUNTS
    Reference(folder, getattr(torch, dtype)).check(PROMPTS, tokens)
