"""Collectives of a tensor parallel group of vLLM's, on two simulated devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from communicator_program import given

WORLD = 2
SECONDS = 300


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank got."""
    folder = tmp_path_factory.mktemp("ranks")
    program = str(Path(__file__).with_name("communicator_program.py"))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "SIMULATED_CANN_DEVICES": str(WORLD),
    }
    logs = [folder / f"{rank}.log" for rank in range(WORLD)]
    started = []
    for rank, log in enumerate(logs):
        command = [sys.executable, program, str(rank), str(WORLD), str(folder)]
        with log.open("w") as out:
            started.append(
                subprocess.Popen(
                    command, stdout=out, stderr=subprocess.STDOUT, env=environment
                )
            )
    try:
        codes = [process.wait(SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert codes == [0] * WORLD, "\n".join(log.read_text()[-3000:] for log in logs)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


INPUTS = [given(rank) for rank in range(WORLD)]


def test_the_platform_chooses_hccl(ranks: list[dict[str, Any]]) -> None:
    for got in ranks:
        assert got["communicator"] == "NPUCommunicator"
        assert got["backend"] == "hccl"
        # Else Dynamo would trace into them.
        assert got["ops"]


def test_a_sum_leaves_the_input_as_it_was(ranks: list[dict[str, Any]]) -> None:
    for rank, got in enumerate(ranks):
        assert torch.equal(got["all_reduce"], INPUTS[0] + INPUTS[1])
        assert torch.equal(got["input"], INPUTS[rank])


@pytest.mark.parametrize("dim", [0, -1])
def test_gathering_and_scattering(ranks: list[dict[str, Any]], dim: int) -> None:
    total = INPUTS[0] + INPUTS[1]
    for rank, got in enumerate(ranks):
        assert torch.equal(got[f"all_gather {dim}"], torch.cat(INPUTS, dim))
        part = total.chunk(WORLD, dim)[rank]
        assert torch.equal(got[f"reduce_scatter {dim}"], part)


def test_gathering_to_one_rank_and_broadcast(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["gather"] is None
    assert torch.equal(ranks[1]["gather"], torch.cat(INPUTS))
    assert all(torch.equal(got["broadcast"], INPUTS[1]) for got in ranks)
