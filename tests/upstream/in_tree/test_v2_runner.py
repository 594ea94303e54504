"""The V2 runner: the real CudaGraphManager.capture."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from reader import folder_of, merged, read_index, read_traces
from stand_ins import BEGIN, END, forward_fns, make_config, warm_up_work
from upstream_api import BREAKABLE_GRAPHS, V2_LORA_GRAPHS
from v2_runner import manager_of
from vllm.config import CUDAGraphMode
from vllm.profiler.capture_traces import trace_capture_session
from vllm.v1.worker.gpu.cudagraph_utils import (
    BatchExecutionDescriptor,
    CudaGraphManager,
)

from conftest import Log


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
            "with_stack": True,
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


@pytest.mark.parametrize(
    "breakable", [False, pytest.param(True, marks=BREAKABLE_GRAPHS)]
)
def test_the_region_is_the_capture_from_begin_to_end(
    tmp_path: Path, log: Log, breakable: bool
) -> None:
    config = make_config(tmp_path)
    manager = manager_of(config)
    if breakable:
        manager.use_breakable_cg = True
    capture(config, manager)
    traces = read_traces(tmp_path)
    assert len(traces) == 5
    assert log.of("ERROR") == []
    for trace in traces.values():
        ((size, mode),) = trace.annotations
        begin, end = trace.span(f"capture_{size}_{mode}")
        for name in (BEGIN, END, "aten::cos"):
            first, last = trace.span(name)
            assert begin <= first <= last <= end, (trace.name, name)
        # Neither the warm-up nor the preparation of inputs.
        assert not {"aten::sin", "aten::tan"} & trace.names, trace.name


@V2_LORA_GRAPHS
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


def test_captures_to_be_thrown_away_leave_nothing(tmp_path: Path, log: Log) -> None:
    """As a runner says it, whose memory profile captures by capture_model itself."""
    config = make_config(tmp_path)
    manager = manager_of(config)
    seen: list[BatchExecutionDescriptor] = []
    with trace_capture_session(config, "v2", manager, profile_only=True):
        manager.capture(forward_fns(seen))
    assert len(seen) == 5
    assert list(tmp_path.iterdir()) == []
    assert log.lines == []


@pytest.mark.parametrize(
    ("module", "name", "query_len", "subsystem", "prefix"),
    [
        ("gpu.spec_decode.x", "SpeculatorCudaGraphManager", 1, "speculator", "DECODE"),
        ("gpu.spec_decode.x", "SpeculatorCudaGraphManager", 3, "speculator", "PREFILL"),
        (
            "gpu.spec_decode.x",
            "PrefillEagleCudaGraphManager",
            1,
            "speculator",
            "PREFILL",
        ),
        ("gpu.spec_decode.x", "DFlashCudaGraphManager", 1, "speculator", "DFLASH"),
        ("models.x", "DecoderReplayCudaGraphManager", 1, "target", "DECODERREPLAY"),
    ],
)
def test_managers_beside_the_target_s_are_told_apart(
    module: str, name: str, query_len: int, subsystem: str, prefix: str, tmp_path: Path
) -> None:
    """By the class, by where it lies, and one class for two steps by its tokens."""
    config = make_config(tmp_path, sizes=(3,))
    kind = type(name, (CudaGraphManager,), {"__module__": f"vllm.v1.worker.{module}"})
    manager = manager_of(config, kind, query_len=query_len)
    manager._capture_descs = {
        CUDAGraphMode.FULL: [BatchExecutionDescriptor(CUDAGraphMode.FULL, 3, 1)]
    }
    with trace_capture_session(config, "v2", manager_of(config)):
        CudaGraphManager.capture(manager, forward_fns([]))
    [entry] = read_index(tmp_path)
    word = f"SPEC_{prefix}" if subsystem == "speculator" else prefix
    assert (entry["subsystem"], entry["mode"]) == (subsystem, f"{word}_FULL")
    assert entry["manager"] == name
