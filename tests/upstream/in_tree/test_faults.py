"""What goes wrong around a capture is an error in the log, and no more than that."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from reader import folder_of, read_index, read_traces
from stand_ins import DEVICE, forward_fns, make_config
from vllm.compilation.counter import compilation_counter
from vllm.config.profiler import ProfilerConfig
from vllm.profiler import capture_session, capture_trace_files, capture_traces
from vllm.profiler.capture_traces import trace_capture_session
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

from conftest import Log


def capture(config: Any) -> int:
    """Capture in a session; the number of graphs captured."""
    mode = config.compilation_config.cudagraph_mode
    manager = CudaGraphManager(config, DEVICE, mode, 1)
    seen: list[object] = []
    with trace_capture_session(config, "v2", manager):
        manager.capture(forward_fns(seen))
    return len(seen)


def lost(folder: Path, count: int = 5) -> str:
    return (
        f"{count} of 5 graphs captured by the v2 model runner left no trace in "
        f"{folder_of(folder)}: {count} of CudaGraphManager"
    )


def test_another_profiler_is_left_alone(tmp_path: Path, log: Log) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as other:
        assert capture(make_config(tmp_path)) == 5
    assert "aten::cos" in {event.name for event in other.events()}
    assert log.of("ERROR") == [
        "Cannot start the profiler of a graph capture: another profiler is active",
        lost(tmp_path),
    ]
    assert read_index(tmp_path) == []


def test_a_profiler_that_does_not_start(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: object) -> None:
        raise RuntimeError("no driver")

    monkeypatch.setattr(torch.profiler.profile, "start", start)
    assert capture(make_config(tmp_path)) == 5
    assert log.of("ERROR") == [
        "Cannot start the profiler of a graph capture: no driver",
        lost(tmp_path),
    ]


def test_a_profiler_that_does_not_stop(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = torch.profiler.profile.stop

    def fail(profiler: torch.profiler.profile) -> None:
        stop(profiler)
        raise RuntimeError("no buffer")

    monkeypatch.setattr(torch.profiler.profile, "stop", fail)
    assert capture(make_config(tmp_path)) == 5
    assert log.of("ERROR") == [
        "Cannot save the trace of a graph capture: no buffer",
        lost(tmp_path),
    ]


@pytest.mark.parametrize("text", ["", '{"traceEvents": [ {"ph": "X"},'])
def test_a_trace_that_is_not_whole(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The exporter says nothing when the disk is full."""
    export = torch.profiler.profile.export_chrome_trace

    def export_chrome_trace(profiler: torch.profiler.profile, path: str) -> None:
        if "capture_4_" in path:
            Path(path).write_text(text)
        else:
            export(profiler, path)

    monkeypatch.setattr(
        torch.profiler.profile, "export_chrome_trace", export_chrome_trace
    )
    assert capture(make_config(tmp_path)) == 5
    assert log.of("ERROR") == [
        "Cannot write 1 capture traces, the first of them "
        "dp0_pp0_tp0.capture_4_PIECEWISE.json.gz: it is incomplete",
        lost(tmp_path, 1),
    ]
    names = {path.name for path in folder_of(tmp_path).iterdir()}
    assert len(names) == 5
    assert not [name for name in names if "capture_4_" in name]
    assert set(read_traces(tmp_path)) == {e["file"] for e in read_index(tmp_path)}


def test_a_trace_that_cannot_be_compressed(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copyfileobj(source: Any, target: Any, size: int) -> None:
        target.write(source.read(size // 2))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(capture_trace_files.shutil, "copyfileobj", copyfileobj)
    assert capture(make_config(tmp_path, sizes=(2,))) == 2
    assert log.of("ERROR") == [
        "Cannot write 2 capture traces, the first of them "
        "dp0_pp0_tp0.capture_2_PIECEWISE.json.gz: [Errno 28] No space left on device",
        lost(tmp_path, 2).replace("5", "2", 1),
    ]
    assert [path.name for path in folder_of(tmp_path).iterdir()] == [
        "execution_details.json"
    ]


def test_an_index_that_cannot_be_written(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = capture_trace_files.os.replace

    def fail(source: str, target: str) -> None:
        if target.endswith(".json") and read_traces(tmp_path):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        replace(source, target)

    monkeypatch.setattr(capture_trace_files.os, "replace", fail)
    assert capture(make_config(tmp_path)) == 5
    assert log.of("ERROR") == [
        "Cannot write the index of capture traces: [Errno 122] Disk quota exceeded"
    ]
    assert read_index(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path, log: Log) -> None:
    (tmp_path / "file").write_text("")
    assert capture(make_config(tmp_path / "file")) == 5
    (line,) = log.of("ERROR")
    assert line.startswith(
        "No graph captured by the v2 model runner is traced, since "
        f"{folder_of(tmp_path / 'file')} cannot be used: "
    )
    assert log.of("INFO") == []


def test_an_exception_with_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ValueError, match="of the capture") as caught,
        trace_capture_session(make_config(tmp_path / "file"), "v2"),
    ):
        raise ValueError("of the capture")
    assert caught.value.__context__ is None


def test_a_fault_of_the_end_does_not_reach_the_runner(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(capture_trace_files.CaptureTraceFiles, "close", close)
    assert capture(make_config(tmp_path)) == 5
    assert log.of("ERROR") == ["Cannot complete the traces of graph captures"]


def test_graphs_captured_past_the_traced_sites(tmp_path: Path, log: Log) -> None:
    config = make_config(tmp_path)
    manager = CudaGraphManager(
        config, DEVICE, config.compilation_config.cudagraph_mode, 1
    )
    with trace_capture_session(config, "v2", manager):
        manager.capture(forward_fns())
        compilation_counter.num_cudagraph_captured += 3
    assert log.of("ERROR") == [
        "3 more graphs were captured by the v2 model runner where capture is not traced"
    ]


def test_no_graph_at_all(tmp_path: Path, log: Log) -> None:
    with trace_capture_session(make_config(tmp_path), "v1"):
        pass
    assert log.of("ERROR") == [
        "No graph was captured by the v1 model runner where capture is traced"
    ]
    folder = folder_of(tmp_path)
    assert log.of("INFO")[-1] == (
        f"Wrote 0 capture traces to {folder} (graphs captured: none)"
    )


def test_a_second_run_in_the_same_folder(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert capture(make_config(tmp_path)) == 5
    # Another process, as after a restart.
    monkeypatch.setattr(capture_trace_files, "_used_directories", set())
    assert capture(make_config(tmp_path, sizes=(1,))) == 2
    folder = folder_of(tmp_path)
    assert log.of("ERROR") == []
    (line,) = [line for line in log.of("WARNING") if "earlier" in line]
    assert line == (
        f"{folder} holds 5 traces of an earlier run; those of the same name are "
        "replaced, and execution_details.json will not list the others"
    )
    assert len(read_index(tmp_path)) == 2
    assert len(read_traces(tmp_path)) == 5


def test_two_captures_of_one_process_in_the_same_folder(
    tmp_path: Path, log: Log
) -> None:
    for _ in range(2):
        assert capture(make_config(tmp_path)) == 5
    assert log.of("ERROR") == [
        f"Capture traces of this process in {folder_of(tmp_path)} are replaced by "
        "those of another capture wherever they have the same name"
    ]
    assert len(read_index(tmp_path)) == len(read_traces(tmp_path)) == 5


@pytest.mark.parametrize(("first", "data_parallel_index"), [(False, 0), (True, 1)])
def test_only_the_first_rank_writes(
    tmp_path: Path,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    first: bool,
    data_parallel_index: int,
) -> None:
    monkeypatch.setattr(capture_traces, "is_global_first_rank", lambda: first)
    config = make_config(tmp_path / "out", data_parallel_index=data_parallel_index)
    assert capture(config) == 5
    assert not (tmp_path / "out").exists()
    assert log.lines == ["DEBUG Capture traces are written by the first rank only"]


def test_names_hold_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rank in (("get_pp_group", 2), ("get_tp_group", 3)):
        group = SimpleNamespace(rank_in_group=rank)
        monkeypatch.setattr(capture_session, name, lambda group=group: group)
    assert capture(make_config(tmp_path, sizes=(2,))) == 2
    assert set(read_traces(tmp_path)) == {
        f"dp0_pp2_tp3.capture_2_{mode}.json.gz" for mode in ("PIECEWISE", "FULL")
    }
    assert {entry["rank"] for entry in read_index(tmp_path)} == {"dp0_pp2_tp3"}
    assert capture_session._rank_tag(5) == "dp5_pp2_tp3"


def test_options_of_the_profiler_are_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    profile = torch.profiler.profile

    def record(**options: Any) -> torch.profiler.profile:
        made.append(options)
        return profile(**options)

    monkeypatch.setattr(torch.profiler, "profile", record)
    plain = {
        "torch_profiler_with_stack": False,
        "torch_profiler_record_shapes": False,
        "torch_profiler_with_memory": False,
        "torch_profiler_with_flops": False,
    }
    capture(make_config(tmp_path / "defaults", sizes=(1,)))
    capture(make_config(tmp_path / "plain", sizes=(1,), **plain))
    for option in plain:
        config = make_config(tmp_path / option, sizes=(1,), **plain | {option: True})
        capture(config)
    words = ("with_stack", "record_shapes", "profile_memory", "with_flops")
    # Two graphs each; only stacks are on by default.
    assert [tuple(options[word] for word in words) for options in made[::2]] == [
        (True, False, False, False),
        (False, False, False, False),
        (True, False, False, False),
        (False, True, False, False),
        (False, False, True, False),
        (False, False, False, True),
    ]
    for folder, stacks in (("defaults", True), ("plain", False)):
        for trace in read_traces(tmp_path / folder).values():
            frames = [e for e in trace.events if e.get("cat") == "python_function"]
            assert bool(frames) is stacks
            # Nothing of what writes the traces is in them.
            assert not [e for e in frames if "capture_trace_files" in e["name"]]
            assert not [e for e in frames if "gzip" in e["name"]]


def test_traces_without_compression(tmp_path: Path) -> None:
    capture(make_config(tmp_path, torch_profiler_use_gzip=False))
    traces = read_traces(tmp_path)
    assert set(traces) == {entry["file"] for entry in read_index(tmp_path)}
    assert all(name.endswith(".json") for name in traces)
    assert {len(trace.annotations) for trace in traces.values()} == {1}
    assert not [p for p in folder_of(tmp_path).iterdir() if p.name.startswith(".")]


ACTIVITY = torch.profiler.ProfilerActivity


@pytest.mark.parametrize(
    ("platform", "supported", "wanted", "warned"),
    [
        ("cuda_alike", {ACTIVITY.CPU, ACTIVITY.CUDA}, [ACTIVITY.CUDA], False),
        ("xpu", {ACTIVITY.CPU, ACTIVITY.XPU}, [ACTIVITY.XPU], False),
        ("cpu", {ACTIVITY.CPU, ACTIVITY.CUDA}, [], False),
        ("other", {ACTIVITY.CPU, ACTIVITY.PrivateUse1}, [ACTIVITY.PrivateUse1], False),
        ("other", {ACTIVITY.CPU, ACTIVITY.CUDA}, [], True),
        ("cuda_alike", {ACTIVITY.CPU}, [], True),
    ],
)
def test_activities_are_those_of_the_platform(
    monkeypatch: pytest.MonkeyPatch,
    log: Log,
    platform: str,
    supported: set[Any],
    wanted: list[Any],
    warned: bool,
) -> None:
    kinds = ("cuda_alike", "xpu", "cpu")
    monkeypatch.setattr(
        capture_session,
        "current_platform",
        SimpleNamespace(
            **{f"is_{kind}": lambda kind=kind: kind == platform for kind in kinds}
        ),
    )
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: supported)
    config = ProfilerConfig()
    assert capture_session._profiler_activities(config) == [ACTIVITY.CPU, *wanted]
    assert bool(log.of("WARNING")) is warned


def test_activities_as_configured(tmp_path: Path) -> None:
    """Releases since 0.31 have the option; the helper is the same for all."""
    config = make_config(tmp_path)
    # Past the check of unknown names, which a release without the option has.
    object.__setattr__(config.profiler_config, "torch_profiler_activities", ["CUDA"])
    session = capture_session.CaptureTraceSession(config, "v2")
    assert session.activities == [ACTIVITY.CUDA]
