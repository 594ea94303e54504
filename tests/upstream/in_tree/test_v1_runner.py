"""The real capture functions of the V1 runner, and of the encoders it captures."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import vllm.v1.worker.gpu_model_runner as v1
from eager_graphs import BEGIN, END, annotations, names
from eager_graphs import vllm_config as make_config
from vllm.config.compilation import CUDAGraphMode
from vllm.forward_context import BatchDescriptor
from vllm.profiler import capture_traces
from vllm.v1.worker.encoder_cudagraph import EncoderCudaGraphManager
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

FULL, PIECEWISE = CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE
DESCS = [
    (PIECEWISE, [BatchDescriptor(8), BatchDescriptor(4), BatchDescriptor(2)]),
    (FULL, [BatchDescriptor(4, 4, uniform=True), BatchDescriptor(6, 3, uniform=True)]),
]


class Encoder:
    """A model's encoder, as far as its graph manager knows it."""

    def prepare_encoder_cudagraph_capture_inputs(self, budget, *rest):
        return SimpleNamespace(values={"pixels": torch.ones(budget)})

    def encoder_cudagraph_forward(self, values, path):
        with torch.profiler.record_function(f"encoder_{path}"):
            return values["pixels"] * 2


def encoder_manager(dual=False):
    manager = object.__new__(EncoderCudaGraphManager)
    manager.__dict__.update(
        max_batch_size=2,
        max_frames_per_batch=1,
        budget_graphs={},
        model=Encoder(),
        device="cpu",
        dtype=torch.float32,
        graph_pool=None,
        token_budgets=[16, 32],
        global_token_budgets=[16],
        local_token_budgets=[16],
        config=SimpleNamespace(enable_dual_path_graph=dual),
    )
    return manager


def runner_of(config, encoder=None, fail_at=None, warmups=2):
    runner = object.__new__(GPUModelRunner)
    runs = []

    def dummy_run(
        num_tokens, cudagraph_runtime_mode, is_graph_capturing=False, **kwargs
    ):
        word = "captured" if is_graph_capturing else "warmup"
        runs.append((num_tokens, word))
        with torch.profiler.record_function(f"run_{word}_{num_tokens}"):
            torch.ones(2).add_(1)
        if is_graph_capturing and num_tokens == fail_at:
            raise RuntimeError("capture failed")

    runner.__dict__.update(
        vllm_config=config,
        device="cpu",
        runs=runs,
        _dummy_run=dummy_run,
        lora_config=None,
        load_config=SimpleNamespace(use_tqdm_on_load=False),
        parallel_config=SimpleNamespace(use_ubatching=False),
        compilation_config=SimpleNamespace(
            cudagraph_num_of_warmups=warmups,
            cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE,
        ),
        cudagraph_dispatcher=SimpleNamespace(
            get_capture_descs=lambda: DESCS, cudagraph_keys={}, keys_initialized=True
        ),
        encoder_cudagraph_manager=encoder,
        max_model_len=64,
        max_num_tokens=64,
        _maybe_init_encoder_cudagraph_manager=lambda: None,
        _create_encoder_cudagraph_manager=lambda: encoder,
        _init_minimal_kv_cache_for_profiling=lambda: None,
        _cleanup_profiling_kv_cache=lambda: None,
        _freeze_gc=nullcontext,
        maybe_remove_all_loras=lambda lora_config: None,
    )
    return runner


@pytest.fixture(autouse=True)
def no_gpu(eager, monkeypatch):
    monkeypatch.setattr(v1, "lock_workspace", lambda: None)
    monkeypatch.setattr(
        v1, "set_current_vllm_config", lambda config: nullcontext(), raising=True
    )
    monkeypatch.setattr(
        type(v1.current_platform),
        "graph_pool_handle",
        lambda self=None: None,
        raising=False,
    )


def index(folder):
    return json.loads((folder / "capture_traces/execution_details.json").read_text())


def trace(folder, word):
    return folder / f"capture_traces/dp0_pp0_tp0.capture_{word}.json.gz"


def test_one_trace_a_graph_and_no_warmup_in_it(tmp_path, log):
    runner = runner_of(make_config(tmp_path))
    runner.capture_model()

    words = ["8_PIECEWISE", "4_PIECEWISE", "2_PIECEWISE", "4_FULL", "6_FULL"]
    assert [f"{e['batch_size']}_{e['mode']}" for e in index(tmp_path)] == words
    for word in words:
        seen = names(trace(tmp_path, word))
        assert annotations(trace(tmp_path, word)) == [f"capture_{word}"]
        assert f"run_captured_{word.partition('_')[0]}" in seen
        assert not [name for name in seen if "warmup" in name]
    assert [word for _, word in runner.runs] == ["warmup", "warmup", "captured"] * 5
    assert "Tracing graph captures of the v1 model runner" in log.text
    assert [e["uniform_token_count"] for e in index(tmp_path)] == [None] * 3 + [1, 2]
    assert {e["runner"] for e in index(tmp_path)} == {"v1"}
    assert {e["manager"] for e in index(tmp_path)} == {"GPUModelRunner"}


def test_throw_away_captures_leave_no_trace(tmp_path):
    runner = runner_of(make_config(tmp_path / "none"), encoder_manager())
    runner.profile_cudagraph_memory()
    assert ("captured" in {word for _, word in runner.runs}) is True
    assert not (tmp_path / "none").exists()


def test_throw_away_captures_before_the_real_ones_add_nothing(tmp_path):
    runner = runner_of(make_config(tmp_path))
    runner.profile_cudagraph_memory()
    runner.capture_model()
    assert len(index(tmp_path)) == 5
    assert len(list((tmp_path / "capture_traces").glob("*.gz"))) == 5


def test_capture_outside_of_a_session_is_untouched(tmp_path):
    runner = runner_of(make_config(tmp_path / "none"))
    runner._capture_cudagraphs(DESCS[0][1], PIECEWISE)
    assert len(runner.runs) == 9
    assert not (tmp_path / "none").exists()


def test_off_makes_no_profiler_and_no_file(tmp_path, monkeypatch):
    def explode(*args, **kwargs):
        raise AssertionError("a profiler object was made")

    monkeypatch.setattr(torch.profiler, "profile", explode)
    config = make_config(tmp_path / "none", capture_torch_profiler=False)
    runner_of(config, encoder_manager()).capture_model()
    assert not (tmp_path / "none").exists()


def test_an_exception_goes_through_and_the_profiler_is_closed(tmp_path):
    runner = runner_of(make_config(tmp_path), fail_at=4)
    with pytest.raises(RuntimeError, match="capture failed"):
        runner.capture_model()
    assert not torch.autograd._profiler_enabled()
    assert capture_traces._session is None
    assert [e["batch_size"] for e in index(tmp_path)] == [8]


def test_encoder_graphs_by_budget(tmp_path):
    runner_of(make_config(tmp_path), encoder_manager()).capture_model()
    entries = [e for e in index(tmp_path) if e["subsystem"] == "encoder"]
    assert [(e["batch_size"], e["mode"]) for e in entries] == [
        (32, "ENC_DEFAULT_FULL"),
        (16, "ENC_DEFAULT_FULL"),
    ]
    seen = names(trace(tmp_path, "32_ENC_DEFAULT_FULL"))
    # The warm-up runs the encoder too; only the captured run may be in the trace.
    assert seen.count("encoder_default") == 1
    assert BEGIN in seen and END in seen


def test_encoder_paths_keep_apart(tmp_path):
    runner_of(make_config(tmp_path), encoder_manager(dual=True)).capture_model()
    modes = [e["mode"] for e in index(tmp_path) if e["subsystem"] == "encoder"]
    assert modes == ["ENC_GLOBAL_FULL", "ENC_LOCAL_FULL"]
