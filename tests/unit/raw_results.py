"""Raw results as tests/gpu/on_device.py writes them, of two sizes a mode."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

PIN = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
DIGEST = "sha256:" + "1" * 64
ON = {"capture_torch_profiler": True}
TOKENS = [[1, 2, 3], [4, 5, 6]]


def entry(size: int, mode: str, runner: str, **more: Any) -> dict[str, Any]:
    name = f"capture_{size}_{mode}"
    return {
        "file": f"dp0_pp0_tp0.{name}.json.gz",
        "batch_size": size,
        "mode": mode,
        "annotation": name,
        "cudagraph_mode": mode.rpartition("_")[2],
        "subsystem": "target",
        "num_reqs": None,
        "runner": runner,
        "rank": "dp0_pp0_tp0",
        **more,
    }


def raw_run(name: str, modes: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """One run of two sizes in each mode; a PIECEWISE capture is of 3 device graphs."""
    runner = "v1" if name.startswith("v1") else "v2"
    run: dict[str, Any] = {
        "name": name,
        "tree": "patched",
        "gpu": "NVIDIA H200",
        "torch": "2.11.0+cu130",
        "graphs": 8,
        "capture_seconds": [1.5],
        "tokens": TOKENS,
        "distinct_tokens": 6,
        "runner": runner,
        "profiler_config": None,
        "environment": PIN if runner == "v1" else {},
        "log": [],
        "seconds": 9.0,
    }
    if modes:
        sizes = (2, 1)
        words = ", ".join(f"{len(sizes)} {mode}" for mode in modes)
        run |= {
            "profiler_config": ON,
            "traces": len(sizes) * len(modes),
            "trace_bytes": 1000,
            "manifest": [entry(n, mode, runner) for mode in modes for n in sizes],
            "manifest_fits_files": True,
            "modes": dict.fromkeys(modes, len(sizes)),
            "without_begin_and_end": [],
            "without_their_annotation": [],
            "log": [
                f"Tracing the graphs that the {runner} model runner captures to /t",
                f"Wrote 4 capture traces to /t (graphs captured: {words})",
            ],
        }
    return run | more


def counts() -> dict[str, Any]:
    both = ("PIECEWISE", "FULL")
    return raw_file(
        raw_run("eager", tree="unpatched", graphs=0),
        raw_run("unpatched", tree="unpatched"),
        raw_run("patched-off"),
        raw_run("v2", both),
        raw_run("v1", both),
        raw_run("v2-decode-only", ("FULL",), graphs=2),
    )


def timing() -> dict[str, Any]:
    run = raw_run("v2-timing", profiler_config={}, rounds=[])
    run["log"] = ["Wrote 4 capture traces to /t (graphs captured: 3 PIECEWISE, 1 FULL)"]
    for seconds in (1.0, 9.0, 2.0):
        run["rounds"] += [
            {"setting": "off", "seconds": seconds, "parts": {}},
            {
                **{"setting": "none", "seconds": 3 * seconds, "parts": {"stop": 0.5}},
                **{"files": 4, "bytes": 40},
            },
        ]
    return raw_file(run)


def timing_v1() -> dict[str, Any]:
    raw = timing()
    raw["runs"][0] |= {"name": "v1-timing", "runner": "v1", "environment": PIN}
    return raw


def eagle() -> dict[str, Any]:
    run = raw_run("v2-eagle", ("FULL", "SPEC_DECODE_FULL"))
    for each in run["manifest"][2:]:
        each["subsystem"] = "speculator"
    return raw_file(run)


def raw_file(*runs: dict[str, Any]) -> dict[str, Any]:
    return {
        "release": "0.25",
        "version": "0.25.1",
        "patch_set": DIGEST,
        "torch": "2.11.0",
        "runs": copy.deepcopy(list(runs)),
    }


def run_named(raw: dict[str, Any], name: str) -> dict[str, Any]:
    return next(run for run in raw["runs"] if run["name"] == name)


def written(folder: Path, raw: dict[str, Any]) -> Path:
    file = folder / "raw.json"
    file.write_text(json.dumps(raw))
    return file
