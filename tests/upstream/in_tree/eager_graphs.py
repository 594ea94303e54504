"""Stand-ins for what a machine without a GPU lacks; all else in these tests is real.

`EagerGraph` takes the place of `torch.cuda.CUDAGraph`: what is captured just runs. The
begin and the end of a capture are marked in the trace, as a driver's calls would be.
"""

from __future__ import annotations

import gzip
import json
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config.profiler import ProfilerConfig

BEGIN = "cudaStreamBeginCapture"
END = "cudaStreamEndCapture"


class EagerGraph:
    """Not a CUDA graph: there is no GPU here. Nothing is recorded or replayed."""


@contextmanager
def eager_capture(graph: EagerGraph, pool: object = None):
    """In place of `torch.cuda.graph`: run the body, marked at both ends."""
    assert isinstance(graph, EagerGraph)
    with torch.profiler.record_function(BEGIN):
        pass
    try:
        yield
    finally:
        with torch.profiler.record_function(END):
            pass


def install(monkeypatch: Any) -> None:
    """Put the stand-ins in place for one test."""
    import vllm.v1.worker.gpu.cudagraph_utils as v2
    import vllm.v1.worker.gpu_model_runner as v1

    monkeypatch.setattr(torch.cuda, "CUDAGraph", EagerGraph)
    monkeypatch.setattr(torch.cuda, "graph", eager_capture)
    for module in (v1, v2):
        monkeypatch.setattr(module, "graph_capture", lambda device: nullcontext())
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.accelerator, name, lambda: None)
    monkeypatch.setattr(
        torch.accelerator, "get_memory_info", lambda: (1 << 30, 1 << 31)
    )


def vllm_config(folder: Path, **options: Any) -> SimpleNamespace:
    """The parts of a `VllmConfig` that tracing reads, with a real `ProfilerConfig`."""
    options = {
        "capture_torch_profiler": True,
        "torch_profiler_with_stack": False,
    } | options
    profiler = ProfilerConfig(
        profiler="torch", torch_profiler_dir=str(folder), **options
    )
    return SimpleNamespace(
        profiler_config=profiler, parallel_config=SimpleNamespace(data_parallel_index=0)
    )


def events(path: Path) -> list[dict]:
    """The events of one trace file."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return json.loads(text)["traceEvents"]


def names(path: Path) -> list[str]:
    """The names of a trace's events."""
    return [event.get("name", "") for event in events(path)]


def annotations(path: Path) -> list[str]:
    """The user annotations of a trace, without the markers of these stand-ins."""
    return [
        event["name"]
        for event in events(path)
        if event.get("cat") == "user_annotation"
        and event["name"].startswith("capture_")
    ]


def read_as_tracelens(folder: Path) -> dict[str, str]:
    """Which file stands for which graph, by the rules of the traces' best-known reader.

    Written from its documented behaviour (TraceLens, capture-trace merging): the index
    names file, batch size and mode; only FULL and PIECEWISE count, keyed
    `{batch}_{mode}`, and a later entry overwrites an earlier one.
    """
    merged = {}
    for entry in json.loads((folder / "execution_details.json").read_text()):
        assert isinstance(entry["batch_size"], int)
        if entry["mode"] in ("FULL", "PIECEWISE"):
            merged[f"{entry['batch_size']}_{entry['mode']}"] = entry["file"]
    return merged
