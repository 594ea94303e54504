"""The V2 runner's real capture_model: target, speculator, encoder, memory profile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from encoders import encoder_manager
from reader import merged, read_index, read_traces
from stand_ins import make_config
from upstream_api import (
    DFLASH,
    DRAFTING,
    ENCODER_ONLY_GRAPHS,
    V2_ENCODER_GRAPHS,
    V2_MEMORY_PROFILE,
    EncoderOnlyRunner,
)
from v2_runner import (
    Speculator,
    encoder_runner_of,
    runner_of,
)
from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu.model_runner import GPUModelRunner

from conftest import Log


def test_capture_model_tells_the_target_from_its_speculator(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, sizes=(1, 2))
    runner = runner_of(config, monkeypatch, Speculator(config))
    assert GPUModelRunner.capture_model(runner) == 0
    graphs = [
        ("target", "ModelCudaGraphManager", "PIECEWISE", (2, 1)),
        ("target", "ModelCudaGraphManager", "FULL", (2, 1)),
    ]
    for step in DRAFTING:
        name = step.manager.__name__
        if step.piecewise is not None:
            graphs.append(("speculator", name, step.piecewise, (2, 1)))
        # A FULL graph holds whole requests.
        whole = tuple(size for size in (2, 1) if size % step.query_len == 0)
        graphs.append(("speculator", name, step.full, whole))
    if DFLASH is not None:
        graphs.append(
            ("speculator", "DFlashCudaGraphManager", "SPEC_DFLASH_FULL", (2, 1))
        )
    index = read_index(tmp_path)
    assert [
        (e["subsystem"], e["manager"], e["mode"], e["batch_size"]) for e in index
    ] == [(*graph, size) for *graph, sizes in graphs for size in sizes]
    traces = read_traces(tmp_path)
    assert len(traces) == len(index)
    for entry in index:
        wanted = [(entry["batch_size"], entry["mode"])]
        assert traces[entry["file"]].annotations == wanted
    # Merging finds the target's graphs alone, none written over.
    assert merged(tmp_path) == {
        f"{size}_{mode}": f"dp0_pp0_tp0.capture_{size}_{mode}.json.gz"
        for mode in ("PIECEWISE", "FULL")
        for size in (1, 2)
    }
    assert log.of("ERROR") == []


def test_capture_model_with_the_option_off(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise AssertionError("a profiler was made")

    monkeypatch.setattr(torch.profiler, "profile", explode)
    monkeypatch.chdir(tmp_path)
    config = make_config(sizes=(1, 2))
    runner = runner_of(config, monkeypatch, Speculator(config))
    assert GPUModelRunner.capture_model(runner) == 0
    assert len(runner.cudagraph_manager.graphs) == 2
    assert list(tmp_path.iterdir()) == []
    assert log.lines == []


def test_capture_model_without_graphs(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is captured, so nothing is missing."""
    config = make_config(tmp_path, mode=CUDAGraphMode.NONE)
    runner = runner_of(config, monkeypatch)
    assert GPUModelRunner.capture_model(runner) == 0
    assert list(tmp_path.iterdir()) == []
    assert log.lines == []


@V2_ENCODER_GRAPHS
def test_encoder_graphs(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, sizes=(2,))
    runner = runner_of(config, monkeypatch, encoder=encoder_manager(config))
    assert GPUModelRunner.capture_model(runner) == 0
    index = read_index(tmp_path)
    assert [
        (e["batch_size"], e["mode"], e["subsystem"], e["runner"]) for e in index
    ] == [
        (32, "ENC_DEFAULT_FULL", "encoder", "v2"),
        (16, "ENC_DEFAULT_FULL", "encoder", "v2"),
        (2, "PIECEWISE", "target", "v2"),
        (2, "FULL", "target", "v2"),
    ]
    assert set(read_traces(tmp_path)) == {e["file"] for e in index}
    assert set(merged(tmp_path)) == {"2_PIECEWISE", "2_FULL"}
    assert log.of("ERROR") == []


@V2_MEMORY_PROFILE
def test_throw_away_captures_leave_nothing(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory profile calls capture_model itself; only the call after it counts."""
    config = make_config(tmp_path, sizes=(1, 2))
    speculator, encoder = Speculator(config), encoder_manager(config)
    runner = runner_of(config, monkeypatch, speculator, encoder)
    assert GPUModelRunner.profile_cudagraph_memory(runner) >= 0
    assert {mode.name for mode in runner.captures} == {"NONE", "PIECEWISE"}
    assert speculator.captured
    assert set(encoder.budget_graphs["default"]) == {16, 32}
    assert list(tmp_path.iterdir()) == []
    assert log.lines == []
    again = runner_of(config, monkeypatch)
    assert GPUModelRunner.capture_model(again) == 0
    assert len(read_index(tmp_path)) == len(read_traces(tmp_path)) == 4
    assert log.of("ERROR") == []


@ENCODER_ONLY_GRAPHS
@pytest.mark.parametrize("profile_only", [False, True])
def test_an_encoder_only_instance(tmp_path: Path, log: Log, profile_only: bool) -> None:
    config = make_config(tmp_path)
    runner = object.__new__(EncoderOnlyRunner)
    runner.vllm_config = config
    runner.model_state = encoder_runner_of(encoder_manager(config))
    assert runner.capture_model(profile_only=profile_only) == 0
    if profile_only:
        assert list(tmp_path.iterdir()) == []
        assert log.lines == []
        return
    assert [(e["batch_size"], e["mode"]) for e in read_index(tmp_path)] == [
        (32, "ENC_DEFAULT_FULL"),
        (16, "ENC_DEFAULT_FULL"),
    ]
    assert len(read_traces(tmp_path)) == 2
    assert log.of("ERROR") == []
