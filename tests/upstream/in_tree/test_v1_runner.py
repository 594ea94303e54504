"""The V1 runner: its real capture functions."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from encoders import encoder_manager
from reader import folder_of, merged, read_index, read_traces
from stand_ins import BEGIN, END, make_config
from v1_runner import runner_of
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from conftest import Log

FULL, PIECEWISE = CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE


def test_one_trace_a_graph(tmp_path: Path, log: Log) -> None:
    runner = runner_of(make_config(tmp_path, max_num_seqs=4))
    runner.capture_model()
    keys = [(size, mode) for mode in ("PIECEWISE", "FULL") for size in (4, 2, 1)]
    assert runner.runs == [(*key, 0) for key in keys]
    index = read_index(tmp_path)
    traces = read_traces(tmp_path)
    assert [(e["batch_size"], e["mode"]) for e in index] == keys
    assert set(traces) == {e["file"] for e in index}
    for entry in index:
        size, mode = entry["batch_size"], entry["mode"]
        trace = traces[entry["file"]]
        assert trace.name == f"dp0_pp0_tp0.capture_{size}_{mode}.json.gz"
        assert trace.annotations == [(size, mode)]
        assert (entry["subsystem"], entry["manager"], entry["runner"]) == (
            "target",
            "GPUModelRunner",
            "v1",
        )
        # Decode for as many sequences as tokens; mixed batches for any number.
        uniform = (size, 1) if mode == "FULL" else (None, None)
        assert (entry["num_reqs"], entry["uniform_token_count"]) == uniform
        begin, end = trace.span(f"capture_{size}_{mode}")
        for name in (BEGIN, END, "aten::cos"):
            first, last = trace.span(name)
            assert begin <= first <= last <= end
        assert "aten::sin" not in trace.names
        # What keeps the annotation from being taken for another's.
        frames = [e for e in trace.events if e.get("name", "").endswith(": dummy_run")]
        assert len(frames) == 1
    folder = folder_of(tmp_path)
    assert log.of("ERROR") == []
    assert log.of("INFO")[-1] == (
        f"Wrote 6 capture traces to {folder} (graphs captured: 3 PIECEWISE, 3 FULL)"
    )


def test_decode_of_speculated_tokens(tmp_path: Path) -> None:
    config = make_config(tmp_path, sizes=(3, 6), num_speculative_tokens=2)
    runner_of(config).capture_model()
    assert [
        (e["batch_size"], e["mode"], e["num_reqs"], e["uniform_token_count"])
        for e in read_index(tmp_path)
    ] == [
        (6, "PIECEWISE", None, None),
        (3, "PIECEWISE", None, None),
        (6, "FULL", 2, 3),
        (3, "FULL", 1, 3),
    ]


def test_full_graphs_of_mixed_batches(tmp_path: Path) -> None:
    runner_of(make_config(tmp_path, mode=FULL)).capture_model()
    assert [
        (e["batch_size"], e["mode"], e["num_reqs"], e["uniform_token_count"])
        for e in read_index(tmp_path)
    ] == [(4, "FULL", 2, None), (2, "FULL", 2, None), (1, "FULL", 1, None)]


@pytest.mark.parametrize(
    ("specialize", "words"),
    [(True, {3: "_LORA3", 0: ""}), (False, {3: ""})],
    ids=["with and without", "with alone"],
)
def test_graphs_that_differ_by_loras(
    tmp_path: Path, specialize: bool, words: dict[int, str]
) -> None:
    lora = SimpleNamespace(max_loras=2, specialize_active_lora=False)
    config = make_config(tmp_path, sizes=(2,), lora=lora, specialize_lora=specialize)
    runner = runner_of(config)
    runner.capture_model()
    modes = ("PIECEWISE", "FULL")
    assert runner.runs == [(2, mode, loras) for mode in modes for loras in words]
    assert [(e["mode"], e["num_active_loras"]) for e in read_index(tmp_path)] == [
        (f"{mode}{word}", loras) for mode in modes for loras, word in words.items()
    ]
    assert set(merged(tmp_path)) == {"2_PIECEWISE", "2_FULL"}


def test_throw_away_captures_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        gpu_model_runner, "set_current_vllm_config", lambda config: nullcontext()
    )
    config = make_config(tmp_path)
    encoder = encoder_manager(config)
    runner = runner_of(config, encoder)
    runner.profile_cudagraph_memory()
    # Two shapes of each mode, and every encoder graph.
    assert [run[:2] for run in runner.runs] == [
        (4, "PIECEWISE"),
        (2, "PIECEWISE"),
        (2, "FULL"),
        (1, "FULL"),
    ]
    assert list(tmp_path.iterdir()) == []


def test_throw_away_captures_before_the_real_ones(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        gpu_model_runner, "set_current_vllm_config", lambda config: nullcontext()
    )
    config = make_config(tmp_path)
    runner = runner_of(config)
    runner.profile_cudagraph_memory()
    runner.cudagraph_dispatcher.initialize_cudagraph_keys(
        config.compilation_config.cudagraph_mode
    )
    runner.capture_model()
    assert len(read_index(tmp_path)) == len(read_traces(tmp_path)) == 5
    assert log.of("ERROR") == []


def test_captures_outside_of_a_session(tmp_path: Path) -> None:
    runner = runner_of(make_config(tmp_path))
    runner._capture_cudagraphs([BatchDescriptor(4), BatchDescriptor(2)], PIECEWISE)
    assert len(runner.runs) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_option_off(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise AssertionError("a profiler was made")

    monkeypatch.setattr(torch.profiler, "profile", explode)
    config = make_config(tmp_path, capture_torch_profiler=False)
    runner = runner_of(config, encoder_manager(config))
    runner.capture_model()
    assert len(runner.runs) == 5
    assert list(tmp_path.iterdir()) == []
    assert log.lines == []


def test_an_exception_in_a_capture_goes_through(tmp_path: Path) -> None:
    runner = runner_of(make_config(tmp_path), fail_at=2)
    with pytest.raises(ValueError, match="no memory is left") as caught:
        runner.capture_model()
    assert caught.value.__context__ is None
    assert not torch.autograd._profiler_enabled()
    assert [e["annotation"] for e in read_index(tmp_path)] == ["capture_4_PIECEWISE"]


def test_a_plugin_that_overrides_capture_model(tmp_path: Path) -> None:
    """As long as it ends in upstream's; the worker has no part in it."""

    class PluginRunner(GPUModelRunner):
        def capture_model(self) -> int:
            return super().capture_model()

    runner = runner_of(make_config(tmp_path))
    runner.__class__ = PluginRunner
    runner.capture_model()
    assert len(read_traces(tmp_path)) == 5
