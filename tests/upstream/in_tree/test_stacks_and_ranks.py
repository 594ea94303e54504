"""Which traces have stacks, when they are written, and which ranks write them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from reader import Trace, folder_of, read_index, read_trace, read_traces
from stand_ins import DEVICE, forward_fns, make_config
from vllm.config.profiler import ProfilerConfig
from vllm.profiler import capture_session, capture_trace_files, capture_traces
from vllm.profiler.capture_traces import trace_capture_session
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

from conftest import Log


def capture(config: Any) -> None:
    """Capture five graphs in a session: 3 PIECEWISE, 2 FULL."""
    mode = config.compilation_config.cudagraph_mode
    manager = CudaGraphManager(config, DEVICE, mode, 1)
    with trace_capture_session(config, "v2", manager):
        manager.capture(forward_fns([]))


def has_frames(trace: Trace) -> bool:
    return any(event.get("cat") == "python_function" for event in trace.events)


@pytest.mark.parametrize(
    ("options", "with_stacks"),
    [
        ({}, [True] * 5),
        ({"torch_profiler_with_stack": False}, [False] * 5),
        ({"capture_torch_profiler_stacks": "none"}, [False] * 5),
        (
            {
                "capture_torch_profiler_stacks": "all",
                "torch_profiler_with_stack": False,
            },
            [True] * 5,
        ),
        (
            {"capture_torch_profiler_stacks": "first"},
            [True, False, False, True, False],
        ),
    ],
)
def test_which_traces_have_stacks(
    options: dict[str, Any], with_stacks: list[bool], tmp_path: Path, log: Log
) -> None:
    capture(make_config(tmp_path, **options))
    index = read_index(tmp_path)
    assert [entry["with_stack"] for entry in index] == with_stacks
    traces = read_traces(tmp_path)
    assert [has_frames(traces[entry["file"]]) for entry in index] == with_stacks
    assert log.of("ERROR") == []


@pytest.mark.parametrize("stacks", ["all", "first"])
def test_stacks_are_those_of_the_capture_alone(stacks: str, tmp_path: Path) -> None:
    """The threads that write other traces are not seen in a trace with stacks."""
    sizes = tuple(range(1, 17))
    capture(
        make_config(
            tmp_path,
            sizes=sizes,
            max_num_seqs=16,
            capture_torch_profiler_stacks=stacks,
        )
    )
    traces = read_traces(tmp_path)
    assert len(traces) == 32
    stacked = [trace for trace in traces.values() if has_frames(trace)]
    assert len(stacked) == (32 if stacks == "all" else 2)
    for trace in stacked:
        names = {name for name in trace.names if "capture_trace_files" in name}
        assert not any("_write" in name for name in names), names
        assert not any("gzip.py" in name for name in trace.names)


@pytest.mark.parametrize("stacks", ["all", "first", "none"])
def test_nothing_is_written_between_captures(
    stacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped profilers wait, up to a number of them."""
    monkeypatch.setattr(capture_trace_files, "_MAX_WAITING", 4)
    done: list[str] = []
    stop = torch.profiler.profile.stop
    export = torch.profiler.profile.export_chrome_trace

    def noted_stop(profiler: torch.profiler.profile) -> None:
        stop(profiler)
        done.append("stop")

    def noted_export(profiler: torch.profiler.profile, path: str) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert not torch.autograd._profiler_enabled()
        done.append("export")
        export(profiler, path)

    monkeypatch.setattr(torch.profiler.profile, "stop", noted_stop)
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", noted_export)
    capture(make_config(tmp_path, capture_torch_profiler_stacks=stacks))
    assert done == ["stop"] * 4 + ["export"] * 4 + ["stop", "export"]
    assert len(read_traces(tmp_path)) == 5


@pytest.mark.parametrize("first", [True, False])
def test_each_rank_writes_to_its_own_folder(
    first: bool, tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_traces, "is_global_first_rank", lambda: first)
    monkeypatch.setattr(capture_session, "_rank_tag", lambda index: f"dp{index}_x")
    config = make_config(
        tmp_path, data_parallel_index=3, capture_torch_profiler_ranks="all"
    )
    capture(config)
    [folder] = folder_of(tmp_path).iterdir()
    assert folder.name == "dp3_x"
    files = sorted(path.name for path in folder.glob("*.gz"))
    assert len(files) == 5
    assert all(name.startswith("dp3_x.capture_") for name in files)
    assert (folder / "execution_details.json").is_file()
    assert all(read_trace(folder / name).annotations for name in files)
    assert log.of("ERROR") == []


def test_the_options_are_checked() -> None:
    config = ProfilerConfig()
    assert config.capture_torch_profiler_stacks is None
    assert config.capture_torch_profiler_ranks == "first"
    for option in (
        {"capture_torch_profiler_stacks": "some"},
        {"capture_torch_profiler_ranks": "last"},
    ):
        with pytest.raises(ValueError, match=next(iter(option))):
            ProfilerConfig(**option)
