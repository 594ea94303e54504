#!/usr/bin/env python3
"""One engine in one process on a GPU: captures, tokens, traces; prints one JSON line.

usage: engine_run.py RUN.json, written by on_device.py; PYTHONPATH holds the tree.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The engine runs in this process, so that its runner can be asked to capture again.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

_PROMPTS = [
    [(7 * i * i + 13 * j + 2) % 2000 + 2 for j in range(5 + i)] for i in range(8)
]


def main() -> None:
    """Read the run, make the engine, print what was seen."""
    run = json.loads(Path(sys.argv[1]).read_text())
    import torch
    from vllm import LLM, SamplingParams
    from vllm.compilation.counter import compilation_counter

    seconds = _time_captures()
    began = time.perf_counter()
    engine = LLM(**run["engine"])
    seen: dict[str, Any] = {
        "start_seconds": round(time.perf_counter() - began, 2),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "runner_pin": os.environ.get("VLLM_USE_V2_MODEL_RUNNER"),
        "graphs": compilation_counter.num_cudagraph_captured,
        "capture_seconds": [round(each, 3) for each in seconds],
    }
    parameters = SamplingParams(
        temperature=0, max_tokens=run.get("max_tokens", 24), ignore_eos=True
    )
    outputs = engine.generate(
        [{"prompt_token_ids": prompt} for prompt in _PROMPTS],
        parameters,
        use_tqdm=False,
    )
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    seen["tokens"] = tokens
    seen["distinct_tokens"] = len({token for row in tokens for token in row})
    if folder := run.get("traces"):
        seen |= read_traces(Path(folder) / "capture_traces")
    if rounds := run.get("rounds"):
        seen["rounds"] = _capture_again(engine, rounds, run["repeats"])
    print("\nRESULT " + json.dumps(seen))


def _time_captures() -> list[float]:
    """Seconds of each call of either runner's capture_model, as they come."""
    from vllm.v1.worker import gpu_model_runner
    from vllm.v1.worker.gpu import model_runner

    seconds: list[float] = []
    for module in (gpu_model_runner, model_runner):
        original = module.GPUModelRunner.capture_model

        def timed(self, *args, _original=original, **kwargs):
            began = time.perf_counter()
            try:
                return _original(self, *args, **kwargs)
            finally:
                seconds.append(time.perf_counter() - began)

        module.GPUModelRunner.capture_model = timed
    return seconds


def _capture_again(
    engine, settings: dict[str, dict[str, Any]], repeats: int
) -> list[dict[str, Any]]:
    """Capture the runner's graphs anew, each setting in turn, ``repeats`` times."""
    from vllm.compilation.cuda_graph import CUDAGraphWrapper

    core = engine.llm_engine.engine_core.engine_core
    worker = core.model_executor.driver_worker.worker
    runner = worker.model_runner
    # The allocator drops a pool with its last graph; this one keeps it.
    keeper = _capture_nothing()
    rounds = []
    for repeat in range(repeats):
        for name, options in settings.items():
            _forget_graphs(runner, CUDAGraphWrapper)
            config = runner.vllm_config.profiler_config
            for key, value in options.items():
                setattr(config, key, value)
            with _breakdown() as parts:
                began = time.perf_counter()
                runner.capture_model()
                took = time.perf_counter() - began
            entry = {"setting": name, "repeat": repeat, "seconds": round(took, 4)}
            entry["parts"] = {key: round(value, 4) for key, value in parts.items()}
            if options.get("capture_torch_profiler"):
                folder = Path(config.torch_profiler_dir) / "capture_traces"
                files = [each for each in folder.iterdir() if _is_trace(each)]
                entry["files"] = len(files)
                entry["bytes"] = sum(file.stat().st_size for file in files)
                for file in folder.iterdir():
                    file.unlink()
            rounds.append(entry)
    del keeper
    return rounds


def _capture_nothing():
    import torch
    from vllm.platforms import current_platform

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=current_platform.get_global_graph_pool()):
        torch.zeros(1, device="cuda")
    return graph


@contextlib.contextmanager
def _breakdown() -> Iterator[dict[str, float]]:
    """Seconds over the body in calls around a capture, by name; they do not nest.

    ``export_chrome_trace`` runs in threads, beside the others.
    """
    import torch

    profile, graph = torch.profiler.profile, torch.cuda.CUDAGraph
    calls = [(profile, name) for name in ("start", "stop", "export_chrome_trace")]
    calls += [(graph, name) for name in ("capture_begin", "capture_end")]
    calls += [(torch.cuda, "synchronize"), (torch.cuda, "empty_cache"), (gc, "collect")]
    parts: dict[str, float] = {}

    def timed(name: str, original):
        def call(*args, **kwargs):
            began = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                parts[name] = parts.get(name, 0) + time.perf_counter() - began

        return call

    originals = [(owner, name, getattr(owner, name)) for owner, name in calls]
    for owner, name, original in originals:
        setattr(owner, name, timed(name, original))
    try:
        yield parts
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _forget_graphs(runner, wrapper) -> None:
    wrapper.clear_all_graphs()
    manager = getattr(runner, "cudagraph_manager", None)
    if manager is not None:
        manager.graphs.clear()
        manager._graphs_captured = False
    gc.collect()
    import torch

    torch.cuda.empty_cache()
    # Upstream locks the workspace once graphs hold its addresses; they are gone.
    from vllm.v1.worker import workspace

    if hasattr(workspace, "unlock_workspace"):
        workspace.unlock_workspace()


def _is_trace(path: Path) -> bool:
    return path.name.endswith((".json", ".json.gz")) and not path.name.startswith(
        (".", "execution_details")
    )


def read_traces(folder: Path) -> dict[str, Any]:
    """What lies in a folder of traces: names, manifest, bytes, and what is wrong."""
    files = sorted(each for each in folder.iterdir() if _is_trace(each))
    index = json.loads((folder / "execution_details.json").read_text())
    by_file = {entry["file"]: entry for entry in index}
    without_ends, without_annotation = [], []
    for file in files:
        data = file.read_bytes()
        text = gzip.decompress(data) if file.suffix == ".gz" else data
        events = json.loads(text)["traceEvents"]
        names = Counter(str(event.get("name")) for event in events)
        if not any("StreamBeginCapture" in name for name in names) or not any(
            "StreamEndCapture" in name for name in names
        ):
            without_ends.append(file.name)
        annotations = [
            event["name"]
            for event in events
            if event.get("cat") == "user_annotation"
            and str(event.get("name")).startswith("capture_")
        ]
        if annotations != [by_file.get(file.name, {}).get("annotation")]:
            without_annotation.append(file.name)
    return {
        "traces": len(files),
        "trace_bytes": sum(file.stat().st_size for file in files),
        "manifest": index,
        "manifest_fits_files": sorted(by_file) == [file.name for file in files],
        "modes": dict(Counter(entry["mode"] for entry in index)),
        "without_begin_and_end": without_ends,
        "without_their_annotation": without_annotation,
    }


if __name__ == "__main__":
    main()
