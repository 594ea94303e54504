"""Devices that vLLM assigns to workers: by device_ids, and to engines side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from assigned_devices import PROMPTS
from reference import Reference
from small_engine import write_model
from vllm.config import ParallelConfig


def _found(folder: Path, which: str) -> dict[str, Any]:
    program = Path(__file__).with_name("assigned_devices.py")
    # Workers import the program too, as an extension.
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(program.parent)])
    done = subprocess.run(
        [sys.executable, str(program), str(folder), which],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SIMULATED_CANN_DEVICES": "2", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    return json.loads(lines[-1].removeprefix("FOUND "))


@pytest.mark.skipif(
    not hasattr(ParallelConfig, "assigned_physical_gpu_ids"),
    reason="vLLM has --device-ids since 0.24",
)
def test_devices_that_the_user_chose(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "llama")
    found = _found(folder, "chosen")
    assert found["devices"] == [[1, 1]]
    Reference(folder, torch.float32).check(PROMPTS, found["tokens"][0])


def test_each_data_parallel_engine_has_its_own(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "llama")
    found = _found(folder, "data_parallel")
    assert found["devices"] == [[[0, 0]], [[1, 1]]]
    for tokens in found["tokens"]:
        Reference(folder, torch.float32).check(PROMPTS, tokens)
    assert len(found["tokens"]) == 2
