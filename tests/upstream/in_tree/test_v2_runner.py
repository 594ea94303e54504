"""The V2 runner: the real CudaGraphManager.capture, for target and speculators."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from reader import folder_of, merged, read_index, read_traces
from stand_ins import (
    BEGIN,
    DEVICE,
    END,
    capture_work,
    forward_fns,
    make_config,
    piecewise_work,
    warm_up_work,
)
from vllm.config import CUDAGraphMode
from vllm.profiler.capture_traces import trace_capture_session
from vllm.v1.worker.gpu import cudagraph_utils, model_runner
from vllm.v1.worker.gpu.cudagraph_utils import (
    AttentionState,
    BatchExecutionDescriptor,
    CudaGraphManager,
    ModelCudaGraphManager,
)
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.spec_decode.autoregressive import (
    cudagraph_utils as speculator_utils,
)
from vllm.v1.worker.gpu.spec_decode.dflash.cudagraph import DFlashCudaGraphManager

from conftest import Log


def manager_of(config: Any, kind: type = CudaGraphManager, **more: Any) -> Any:
    mode = config.compilation_config.cudagraph_mode
    return kind(config, DEVICE, mode, config.num_speculative_tokens + 1, **more)


def capture(config: Any, manager: Any, **more: Any) -> list[BatchExecutionDescriptor]:
    """Capture the target's graphs in a session; the descriptors, in order."""
    seen: list[BatchExecutionDescriptor] = []
    with trace_capture_session(config, "v2", manager):
        CudaGraphManager.capture(manager, forward_fns(seen, **more))
    return seen


def test_one_trace_a_graph_and_the_index(tmp_path: Path, log: Log) -> None:
    config = make_config(tmp_path, sizes=(1, 2, 4, 8))
    seen = capture(config, manager_of(config))
    # Four sizes of mixed batches, and decode for as many tokens as sequences.
    assert [(d.cg_mode.name, d.num_tokens) for d in seen] == [
        *(("PIECEWISE", size) for size in (8, 4, 2, 1)),
        *(("FULL", size) for size in (2, 1)),
    ]
    traces = read_traces(tmp_path)
    index = read_index(tmp_path)
    assert [entry["file"] for entry in index] == [
        f"dp0_pp0_tp0.capture_{d.num_tokens}_{d.cg_mode.name}.json.gz" for d in seen
    ]
    assert set(traces) == {entry["file"] for entry in index}
    for desc, entry in zip(seen, index, strict=True):
        assert entry == {
            "file": entry["file"],
            "batch_size": desc.num_tokens,
            "mode": desc.cg_mode.name,
            "annotation": f"capture_{desc.num_tokens}_{desc.cg_mode.name}",
            "cudagraph_mode": desc.cg_mode.name,
            "subsystem": "target",
            "manager": "CudaGraphManager",
            "num_reqs": desc.num_reqs,
            "uniform_token_count": desc.uniform_token_count,
            "num_active_loras": 0,
            "runner": "v2",
            "rank": "dp0_pp0_tp0",
            "vllm_version": entry["vllm_version"],
        }
        assert entry["vllm_version"].startswith("0.")
        assert traces[entry["file"]].annotations == [
            (desc.num_tokens, desc.cg_mode.name)
        ]
    assert log.of("ERROR") == []
    folder = folder_of(tmp_path)
    # On a platform that torch does not know of, a warning tells of the host alone.
    assert log.of("INFO") == [
        f"Tracing the graphs that the v2 model runner captures to {folder}",
        f"Wrote 6 capture traces to {folder} (graphs captured: 4 PIECEWISE, 2 FULL)",
    ]
    assert {path.name for path in folder.iterdir()} == {
        *traces,
        "execution_details.json",
    }


def test_the_region_is_the_capture_from_begin_to_end(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    capture(config, manager_of(config))
    for trace in read_traces(tmp_path).values():
        ((size, mode),) = trace.annotations
        begin, end = trace.span(f"capture_{size}_{mode}")
        for name in (BEGIN, END, "aten::cos"):
            first, last = trace.span(name)
            assert begin <= first <= last <= end, (trace.name, name)
        # Neither the warm-up nor the preparation of inputs.
        assert not {"aten::sin", "aten::tan"} & trace.names, trace.name


@pytest.mark.parametrize("cases", [[0, 1, 2, 4], [4, 2, 1, 0]])
def test_graphs_that_differ_by_loras_keep_apart(
    tmp_path: Path, log: Log, cases: list[int]
) -> None:
    config = make_config(tmp_path, sizes=(2,), lora=SimpleNamespace())
    manager = manager_of(config, lora_capture_cases=cases)
    seen = capture(config, manager)
    words = {0: ""} | {n: f"_LORA{n}" for n in (1, 2, 4)}
    index = read_index(tmp_path)
    assert [(e["mode"], e["num_active_loras"]) for e in index] == [
        (f"{mode}{words[case]}", case)
        for mode in ("PIECEWISE", "FULL")
        for case in cases
    ]
    assert len(read_traces(tmp_path)) == len(seen) == 8
    # The plain words are the graphs without LoRA, in whatever order they come.
    loras = {e["file"]: e["num_active_loras"] for e in index}
    assert {key: loras[f] for key, f in merged(tmp_path).items()} == {
        "2_PIECEWISE": 0,
        "2_FULL": 0,
    }
    assert log.of("ERROR") == []


def test_graphs_that_differ_by_uniformity_keep_apart(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    manager = manager_of(config)
    full = CUDAGraphMode.FULL
    descs = [
        BatchExecutionDescriptor(full, 12, 6, uniform_token_count=2),
        BatchExecutionDescriptor(full, 12, 4, uniform_token_count=3),
        BatchExecutionDescriptor(full, 12, 12),
        BatchExecutionDescriptor(full, 12, 11),
        BatchExecutionDescriptor(full, 12, 10),
    ]
    manager._capture_descs = {full: descs}
    assert capture(config, manager) == descs
    index = read_index(tmp_path)
    assert [(e["mode"], e["num_reqs"], e["uniform_token_count"]) for e in index] == [
        ("FULL", 6, 2),
        ("FULL_UNIFORM3", 4, 3),
        ("FULL_MIXED", 12, None),
        ("FULL_MIXED_2", 11, None),
        ("FULL_MIXED_3", 10, None),
    ]
    assert len(read_traces(tmp_path)) == 5


class Speculator:
    """Captures as the autoregressive speculators do, with the real managers."""

    def __init__(self, config: Any) -> None:
        self.prefill = manager_of(
            config, speculator_utils.PrefillSpeculatorCudaGraphManager
        )
        self.decode = manager_of(
            config, speculator_utils.DecodeSpeculatorCudaGraphManager
        )
        self.dflash = manager_of(config, DFlashCudaGraphManager)

    def capture(self, attn_states: Any) -> None:
        self.prefill.capture(self.forward, attn_states)
        self.decode.capture(self.forward, *[None] * 5)
        CudaGraphManager.capture(self.dflash, forward_fns())

    @staticmethod
    def forward(*arguments: Any) -> None:
        if arguments[-1] == CUDAGraphMode.PIECEWISE:
            piecewise_work()
        else:
            capture_work()


def runner_of(
    config: Any, monkeypatch: pytest.MonkeyPatch, speculator: object
) -> SimpleNamespace:
    """What the real GPUModelRunner.capture_model of V2 asks of its ``self``."""
    state = AttentionState(None, {})
    for module in (cudagraph_utils, speculator_utils):
        monkeypatch.setattr(module, "prepare_inputs_to_capture", lambda *a, **k: state)
    monkeypatch.setattr(
        cudagraph_utils, "set_forward_context", lambda *a, **k: nullcontext()
    )
    monkeypatch.setattr(model_runner, "create_lora_capture_hook", lambda *a: None)
    manager = manager_of(config, ModelCudaGraphManager)

    def model(input_ids: torch.Tensor, **_: object) -> torch.Tensor:
        capture_work()
        return torch.ones(len(input_ids), 4)

    def run_pw_graph(*_: object) -> None:
        piecewise_work()

    manager.run_pw_graph = run_pw_graph
    return SimpleNamespace(
        vllm_config=config,
        cudagraph_manager=manager,
        model=model,
        model_state=SimpleNamespace(prepare_dummy_inputs=lambda *a: {}),
        input_buffers=SimpleNamespace(
            input_ids=torch.zeros(8),
            positions=torch.zeros(8),
            is_padding=torch.zeros(8, dtype=torch.bool),
        ),
        intermediate_tensors=None,
        block_tables=None,
        attn_groups=None,
        kv_cache_config=None,
        lora_config=None,
        use_aux_hidden_state_outputs=False,
        speculator=speculator,
        maybe_setup_dummy_loras=lambda lora: nullcontext(),
    )


def test_capture_model_tells_the_target_from_its_speculator(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, sizes=(1, 2))
    runner = runner_of(config, monkeypatch, Speculator(config))
    assert GPUModelRunner.capture_model(runner) == 0
    index = read_index(tmp_path)
    modes = ("PIECEWISE", "FULL")
    assert [
        (e["batch_size"], e["mode"], e["subsystem"], e["manager"]) for e in index
    ] == [
        (size, f"{prefix}{mode}", subsystem, manager)
        for prefix, subsystem, manager in (
            ("", "target", "ModelCudaGraphManager"),
            ("SPEC_PREFILL_", "speculator", "PrefillSpeculatorCudaGraphManager"),
            ("SPEC_DECODE_", "speculator", "DecodeSpeculatorCudaGraphManager"),
            ("SPEC_DFLASH_", "speculator", "DFlashCudaGraphManager"),
        )
        for mode in modes
        for size in (2, 1)
    ]
    traces = read_traces(tmp_path)
    assert len(traces) == len(index) == 16
    for entry in index:
        wanted = [(entry["batch_size"], entry["mode"])]
        assert traces[entry["file"]].annotations == wanted
    # Merging finds the target's graphs alone, none written over.
    assert merged(tmp_path) == {
        f"{size}_{mode}": f"dp0_pp0_tp0.capture_{size}_{mode}.json.gz"
        for mode in modes
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


def test_the_option_off_with_a_profiler_for_serving(tmp_path: Path) -> None:
    config = make_config(tmp_path, capture_torch_profiler=False)
    capture(config, manager_of(config))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("fail_at", "mode"), [(4, "PIECEWISE"), (2, "FULL")])
def test_an_exception_in_a_capture_goes_through(
    tmp_path: Path, log: Log, fail_at: int, mode: str
) -> None:
    config = make_config(tmp_path)
    manager = manager_of(config)
    if mode == "FULL":
        del manager._capture_descs[CUDAGraphMode.PIECEWISE]
    with pytest.raises(ValueError, match="no memory is left") as caught:
        capture(config, manager, fail_at=fail_at)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    # The profiler is closed: the next one starts and records.
    assert not torch.autograd._profiler_enabled()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        warm_up_work()
    assert "aten::sin" in {event.name for event in p.events()}
    assert read_index(tmp_path) == []
    assert read_traces(tmp_path) == {}
    assert log.of("ERROR") == [
        "1 of 1 graphs captured by the v2 model runner left no trace in "
        f"{folder_of(tmp_path)}: 1 of CudaGraphManager"
    ]


def test_what_was_captured_before_an_exception_is_kept(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    with pytest.raises(ValueError, match="no memory is left"):
        capture(config, manager_of(config), fail_at=2)
    assert merged(tmp_path) == {
        "4_PIECEWISE": "dp0_pp0_tp0.capture_4_PIECEWISE.json.gz"
    }
    assert len(read_traces(tmp_path)) == 1


def test_captures_outside_of_a_session_leave_nothing(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    CudaGraphManager.capture(manager_of(config), forward_fns())
    assert list(tmp_path.iterdir()) == []
