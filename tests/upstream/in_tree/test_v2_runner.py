"""The real `CudaGraphManager.capture` and `capture_model` of the V2 runner."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from eager_graphs import BEGIN, END, annotations, events, names, read_as_tracelens
from eager_graphs import vllm_config as make_config
from vllm.config.compilation import CUDAGraphMode
from vllm.profiler import capture_traces
from vllm.v1.worker.gpu.cudagraph_utils import (
    BatchExecutionDescriptor,
    CudaGraphManager,
    ModelCudaGraphManager,
)
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.spec_decode.autoregressive.cudagraph_utils import (
    DecodeSpeculatorCudaGraphManager,
    PrefillSpeculatorCudaGraphManager,
)

FULL, PIECEWISE = CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE


def desc(mode, num_tokens, uniform=None, loras=0):
    return BatchExecutionDescriptor(
        cg_mode=mode,
        num_tokens=num_tokens,
        num_reqs=num_tokens if mode == FULL else None,
        uniform_token_count=uniform,
        num_active_loras=loras,
    )


class Calls:
    """A factory of forward functions that mark each of their runs in the trace."""

    def __init__(self, fail_at=None):
        self.runs = []
        self.fail_at = fail_at

    def __call__(self, desc, warmup):
        label = f"inputs_warmup_{warmup}"
        with torch.profiler.record_function(label):
            pass

        def forward(mode):
            captured = mode == PIECEWISE or not warmup
            word = "captured" if captured else "warmup"
            self.runs.append((desc, word))
            with torch.profiler.record_function(f"run_{word}_{desc.num_tokens}"):
                torch.ones(4).add_(1)
            if captured and desc == self.fail_at:
                raise RuntimeError("capture failed")

        return forward, None


def manager_of(kind, *descs, calls=None):
    """A manager of class `kind` that captures `descs` by the real loop."""
    calls = calls or Calls()

    class Manager(kind):
        def __init__(self):
            self.device = torch.device("cpu")
            self.graphs = {}
            self.pool = None
            self._capture_descs = {}
            for entry in descs:
                self._capture_descs.setdefault(entry.cg_mode, []).append(entry)

        def capture(self, *args, **kwargs):
            return CudaGraphManager.capture(self, calls)

    Manager.__name__ = kind.__name__
    return Manager()


def runner_of(config, target, speculator=None):
    runner = object.__new__(GPUModelRunner)
    state = dict.fromkeys(
        (
            *("model", "model_state", "input_buffers", "intermediate_tensors"),
            *("block_tables", "attn_groups", "kv_cache_config", "lora_config"),
            "use_aux_hidden_state_outputs",
        )
    )
    runner.__dict__.update(
        state,
        vllm_config=config,
        cudagraph_manager=target,
        speculator=speculator,
        maybe_setup_dummy_loras=lambda lora_config: nullcontext(),
    )
    return runner


def index(folder):
    return json.loads((folder / "capture_traces/execution_details.json").read_text())


def files(folder):
    return sorted(path.name for path in (folder / "capture_traces").glob("*.gz"))


DESCS = (desc(PIECEWISE, 8), desc(PIECEWISE, 4), desc(FULL, 4, 1), desc(FULL, 2, 1))


def test_one_trace_a_graph(eager, tmp_path, log):
    runner_of(
        make_config(tmp_path), manager_of(ModelCudaGraphManager, *DESCS)
    ).capture_model()

    words = {"8_PIECEWISE", "4_PIECEWISE", "4_FULL", "2_FULL"}
    assert files(tmp_path) == sorted(f"dp0_pp0_tp0.capture_{w}.json.gz" for w in words)
    for word in words:
        path = tmp_path / f"capture_traces/dp0_pp0_tp0.capture_{word}.json.gz"
        assert annotations(path) == [f"capture_{word}"]
    assert "Tracing graph captures of the v2 model runner" in log.text
    assert "Wrote 4 capture traces" in log.text
    assert not [r for r in log.records if r.levelname == "ERROR"]
    assert not list((tmp_path / "capture_traces").glob(".*"))


def test_region_encloses_the_capture_and_no_warmup(eager, tmp_path):
    runner_of(
        make_config(tmp_path), manager_of(ModelCudaGraphManager, *DESCS)
    ).capture_model()

    for word in ("8_PIECEWISE", "4_FULL"):
        path = tmp_path / f"capture_traces/dp0_pp0_tp0.capture_{word}.json.gz"
        seen = names(path)
        tokens = word.partition("_")[0]
        assert f"run_captured_{tokens}" in seen
        assert not [name for name in seen if "warmup" in name]
    full = events(tmp_path / "capture_traces/dp0_pp0_tp0.capture_4_FULL.json.gz")
    by_name = {event["name"]: event for event in full if "dur" in event}
    region = by_name["capture_4_FULL"]
    for marker in (BEGIN, END):
        assert region["ts"] <= by_name[marker]["ts"]
        assert (
            by_name[marker]["ts"] + by_name[marker]["dur"]
            <= region["ts"] + region["dur"]
        )


def test_index_says_what_each_file_is(eager, tmp_path):
    runner_of(
        make_config(tmp_path), manager_of(ModelCudaGraphManager, *DESCS)
    ).capture_model()

    entries = index(tmp_path)
    assert [
        (e["batch_size"], e["mode"], e["uniform_token_count"]) for e in entries
    ] == [(d.num_tokens, d.cg_mode.name, d.uniform_token_count) for d in DESCS]
    assert {e["file"] for e in entries} == set(files(tmp_path))
    for entry in entries:
        assert entry["subsystem"] == "target"
        assert entry["manager"] == "ModelCudaGraphManager"
        assert entry["runner"] == "v2"
        assert entry["rank"] == "dp0_pp0_tp0"
        assert entry["vllm_version"].startswith("0.25")


def test_speculators_do_not_take_the_targets_keys(eager, tmp_path):
    same = (desc(PIECEWISE, 4), desc(FULL, 2, 1))
    prefill = manager_of(PrefillSpeculatorCudaGraphManager, *same)
    decode = manager_of(DecodeSpeculatorCudaGraphManager, desc(FULL, 2, 1))
    speculator = SimpleNamespace(
        capture=lambda attn_states: (prefill.capture(), decode.capture())
    )
    target = manager_of(ModelCudaGraphManager, *same)
    runner_of(make_config(tmp_path), target, speculator).capture_model()

    assert [e["mode"] for e in index(tmp_path)] == [
        "PIECEWISE",
        "FULL",
        "SPEC_PREFILL_PIECEWISE",
        "SPEC_PREFILL_FULL",
        "SPEC_DECODE_FULL",
    ]
    assert [e["subsystem"] for e in index(tmp_path)] == ["target"] * 2 + [
        "speculator"
    ] * 3
    assert read_as_tracelens(tmp_path / "capture_traces") == {
        "4_PIECEWISE": "dp0_pp0_tp0.capture_4_PIECEWISE.json.gz",
        "2_FULL": "dp0_pp0_tp0.capture_2_FULL.json.gz",
    }


def test_graphs_of_one_size_keep_apart(eager, tmp_path):
    descs = (
        desc(FULL, 12, 3),
        desc(FULL, 12, 4),
        desc(FULL, 12, 3, loras=2),
        desc(FULL, 12, 4, loras=2),
        desc(FULL, 12, None, loras=1),
    )
    runner_of(
        make_config(tmp_path), manager_of(ModelCudaGraphManager, *descs)
    ).capture_model()

    modes = [e["mode"] for e in index(tmp_path)]
    assert modes == ["FULL", "FULL_Q4", "FULL_Q3", "FULL_Q4_LORA2", "FULL_LORA1"]
    assert len(set(files(tmp_path))) == 5
    loras = [e["num_active_loras"] for e in index(tmp_path)]
    assert loras == [0, 0, 2, 2, 1]


def test_the_same_graph_twice_is_numbered(eager, tmp_path):
    twice = manager_of(ModelCudaGraphManager, desc(PIECEWISE, 4), desc(PIECEWISE, 4))
    runner_of(make_config(tmp_path), twice).capture_model()
    assert [e["mode"] for e in index(tmp_path)] == ["PIECEWISE", "PIECEWISE_2"]


def test_off_makes_no_profiler_and_no_file(eager, tmp_path, monkeypatch):
    def explode(*args, **kwargs):
        raise AssertionError("a profiler object was made")

    monkeypatch.setattr(torch.profiler, "profile", explode)
    calls = Calls()
    target = manager_of(ModelCudaGraphManager, *DESCS, calls=calls)
    config = make_config(tmp_path / "none", capture_torch_profiler=False)
    runner_of(config, target).capture_model()
    assert len(calls.runs) == 2 * len(DESCS)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("fails", DESCS[1:3])
def test_an_exception_goes_through_and_the_profiler_is_closed(
    eager, tmp_path, monkeypatch, fails
):
    calls = Calls(fail_at=fails)
    target = manager_of(ModelCudaGraphManager, *DESCS, calls=calls)
    with pytest.raises(RuntimeError, match="capture failed"):
        runner_of(make_config(tmp_path), target).capture_model()

    assert not torch.autograd._profiler_enabled()
    with torch.profiler.profile() as profiler:
        torch.ones(1).add_(1)
    assert profiler.events()
    assert capture_traces._session is None
    # What was captured before it is there, and indexed.
    assert len(index(tmp_path)) == DESCS.index(fails) == len(files(tmp_path))


def test_options_of_the_user_are_obeyed(eager, tmp_path, monkeypatch):
    seen = []
    real = torch.profiler.profile

    def record(**kwargs):
        seen.append(kwargs)
        return real(**kwargs)

    monkeypatch.setattr(torch.profiler, "profile", record)
    config = make_config(
        tmp_path,
        torch_profiler_with_stack=True,
        torch_profiler_record_shapes=True,
        torch_profiler_with_memory=True,
        torch_profiler_with_flops=True,
        torch_profiler_use_gzip=False,
    )
    runner_of(config, manager_of(ModelCudaGraphManager, DESCS[0])).capture_model()
    activities = seen[0].pop("activities")
    assert set(activities) <= torch.profiler.supported_activities()
    assert seen == [
        dict.fromkeys(
            ("record_shapes", "profile_memory", "with_stack", "with_flops"), True
        )
    ]
    path = tmp_path / "capture_traces/dp0_pp0_tp0.capture_8_PIECEWISE.json"
    assert annotations(path) == ["capture_8_PIECEWISE"]
    assert any("cudagraph_utils.py" in name for name in names(path))


def test_another_profiler_goes_on_and_is_an_error_in_the_log(eager, tmp_path, log):
    calls = Calls()
    target = manager_of(ModelCudaGraphManager, *DESCS, calls=calls)
    with torch.profiler.profile() as other:
        runner_of(make_config(tmp_path), target).capture_model()

    assert "run_captured_8" in {event.name for event in other.events()}
    assert len(calls.runs) == 2 * len(DESCS)
    errors = [r.getMessage() for r in log.records if r.levelname == "ERROR"]
    assert "capture_8_PIECEWISE, another profiler is running" in errors[0]
    assert (
        "Only 0 of 4 graphs captured by the v2 model runner left a trace" in errors[-1]
    )
    assert "ModelCudaGraphManager: 4" in errors[-1]
    assert index(tmp_path) == []


def test_a_profiler_that_cannot_start_is_an_error_in_the_log(
    eager, tmp_path, log, monkeypatch
):
    def fail(profiler):
        raise RuntimeError("no start")

    monkeypatch.setattr(torch.profiler.profile, "start", fail)
    calls = Calls()
    target = manager_of(ModelCudaGraphManager, *DESCS, calls=calls)
    runner_of(make_config(tmp_path), target).capture_model()
    assert len(calls.runs) == 2 * len(DESCS)
    assert "Cannot profile the capture of capture_8_PIECEWISE" in log.text
    assert "Only 0 of 4 graphs" in log.text


def test_a_profiler_that_cannot_stop_is_an_error_in_the_log(
    eager, tmp_path, log, monkeypatch
):
    real = torch.profiler.profile.stop

    def fail(profiler):
        real(profiler)
        raise RuntimeError("no stop")

    monkeypatch.setattr(torch.profiler.profile, "stop", fail)
    runner_of(
        make_config(tmp_path), manager_of(ModelCudaGraphManager, DESCS[0])
    ).capture_model()
    assert "Cannot stop the profiler of capture_8_PIECEWISE" in log.text
    assert "Only 0 of 1 graphs" in log.text


def test_traces_that_cannot_be_written_are_an_error_in_the_log(
    eager, tmp_path, log, monkeypatch
):
    def full(profiler, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", full)
    runner_of(
        make_config(tmp_path), manager_of(ModelCudaGraphManager, DESCS[0])
    ).capture_model()
    assert "Cannot write capture trace" in log.text
    assert "No space left on device" in log.text
    assert "Only 0 of 1 graphs" in log.text


def test_an_index_that_cannot_be_written_is_an_error_in_the_log(
    eager, tmp_path, log, monkeypatch
):
    real = capture_traces._write_manifest

    def only_empty(manifest, path):
        if manifest:
            raise OSError(28, "No space left on device")
        real(manifest, path)

    monkeypatch.setattr(capture_traces, "_write_manifest", only_empty)
    runner_of(
        make_config(tmp_path), manager_of(ModelCudaGraphManager, DESCS[0])
    ).capture_model()
    assert "Cannot write execution_details.json" in log.text


def test_a_directory_that_cannot_be_used_is_an_error_in_the_log(eager, tmp_path, log):
    (tmp_path / "file").write_text("in the way")
    calls = Calls()
    target = manager_of(ModelCudaGraphManager, *DESCS, calls=calls)
    runner_of(make_config(tmp_path / "file"), target).capture_model()
    assert "No capture of the v2 model runner is traced" in log.text
    assert len(calls.runs) == 2 * len(DESCS)


def test_graphs_that_no_site_traced_are_an_error_in_the_log(
    eager, tmp_path, log, monkeypatch
):
    target = manager_of(ModelCudaGraphManager, *DESCS)
    monkeypatch.setattr(
        capture_traces, "trace_capture", lambda manager, desc: nullcontext()
    )
    runner_of(make_config(tmp_path), target).capture_model()
    assert "captured 2 graphs and none of them was traced" in log.text


def test_an_earlier_capture_is_told(eager, tmp_path, log):
    for _ in range(2):
        log.clear()
        target = manager_of(ModelCudaGraphManager, *DESCS)
        runner_of(make_config(tmp_path), target).capture_model()
    assert "holds 4 files of an earlier capture" in log.text
    assert len(index(tmp_path)) == len(files(tmp_path)) == 4


@pytest.mark.parametrize(("first", "dp_index"), [(False, 0), (True, 1)])
def test_only_the_first_rank_writes(eager, tmp_path, monkeypatch, first, dp_index):
    monkeypatch.setattr(capture_traces, "is_global_first_rank", lambda: first)
    config = make_config(tmp_path / "none")
    config.parallel_config.data_parallel_index = dp_index
    runner_of(config, manager_of(ModelCudaGraphManager, *DESCS)).capture_model()
    assert not (tmp_path / "none").exists()


def test_names_carry_the_ranks(eager, tmp_path, monkeypatch):
    monkeypatch.setattr(capture_traces, "model_parallel_is_initialized", lambda: True)
    for name, rank in (("get_pp_group", 2), ("get_tp_group", 3)):
        group = SimpleNamespace(rank_in_group=rank)
        monkeypatch.setattr(capture_traces, name, lambda group=group: group)
    runner_of(
        make_config(tmp_path), manager_of(ModelCudaGraphManager, DESCS[0])
    ).capture_model()
    assert files(tmp_path) == ["dp0_pp2_tp3.capture_8_PIECEWISE.json.gz"]


@pytest.mark.parametrize(
    ("platform", "device"),
    [("cuda_alike", "CUDA"), ("xpu", "XPU"), ("other", "PrivateUse1")],
)
def test_activities_are_the_platforms(monkeypatch, platform, device):
    activity = torch.profiler.ProfilerActivity
    monkeypatch.setattr(
        capture_traces,
        "current_platform",
        SimpleNamespace(
            is_cuda_alike=lambda: platform == "cuda_alike",
            is_xpu=lambda: platform == "xpu",
        ),
    )
    every = {activity.CPU, activity.CUDA, activity.XPU, activity.PrivateUse1}
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: every)
    wanted = [activity.CPU, getattr(activity, device)]
    assert capture_traces._profiler_activities() == wanted
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {activity.CPU})
    assert capture_traces._profiler_activities() == [activity.CPU]
