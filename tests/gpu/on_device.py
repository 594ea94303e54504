#!/usr/bin/env python3
"""Run packed releases on this machine's GPU and write one JSON result for each.

usage: on_device.py --packed DIR --out DIR [--set NAME …] VERSION …
Needs torch, transformers and numpy here, and no internet; see pack.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
_SIZES = [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 96, 128, 160, 192, 224, 256]
_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
_ONE_RUN_SECONDS = 240


class Device:
    """Trees unpacked, models made, runs run."""

    def __init__(self, packed: Path, version: str, work: Path, out: Path) -> None:
        self.work = work / version
        self.out = out
        self.entry = json.loads((packed / version / "release.json").read_text())
        self.trees = {}
        for name, tars in {
            "unpatched": ("base",),
            "patched": ("base", "patched"),
        }.items():
            folder = self.work / name
            for each in tars:
                with tarfile.open(packed / version / f"{each}.tar.gz") as tar:
                    tar.extractall(folder, filter="data")
            self.trees[name] = folder
        self.results: list[dict[str, Any]] = []

    def run(
        self,
        name: str,
        *,
        tree: str = "patched",
        env: dict[str, str] | None = None,
        profiler: dict[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """One process; its result has a ``name`` and, if it failed, its last lines."""
        folder = self.work / "runs" / name
        folder.mkdir(parents=True)
        run: dict[str, Any] = {
            "engine": {**_engine(self.work), **options.pop("engine", {})}
        }
        run |= options
        if profiler is not None:
            traces = str(folder / "traces")
            run["engine"]["profiler_config"] = {
                "profiler": "torch",
                "torch_profiler_dir": traces,
                **profiler,
            }
            if profiler.get("capture_torch_profiler"):
                run["traces"] = traces
        (folder / "run.json").write_text(json.dumps(run))
        words = [str(self.trees[tree]), os.environ.get("PYTHONPATH", "")]
        began = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, str(HERE / "engine_run.py"), str(folder / "run.json")],
                env={
                    **os.environ,
                    **(env or {}),
                    "PYTHONPATH": os.pathsep.join(filter(None, words)),
                    # Processes that compile the same graphs side by side.
                    "VLLM_CACHE_ROOT": str(folder / "cache"),
                    "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
                    "TORCHINDUCTOR_COMPILE_THREADS": "1",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_ONE_RUN_SECONDS,
                check=False,
            )
            output = done.stdout
        except subprocess.TimeoutExpired as error:
            output = (error.stdout or b"").decode("utf-8", "replace") + "\ntimed out"
        (folder / "log").write_text(output)
        found = re.search(r"^RESULT (.*)$", output, re.MULTILINE)
        result: dict[str, Any] = {"name": name, "tree": tree}
        if found is None:
            result["failed"] = output.splitlines()[-25:]
        else:
            result |= json.loads(found[1])
        result["runner"] = "v2" if "Using V2 Model Runner" in output else "v1"
        result["profiler_config"] = profiler
        result["environment"] = env or {}
        result["seconds"] = round(time.perf_counter() - began, 1)
        result["log"] = [
            line.partition("] ")[2]
            for line in output.splitlines()
            if "capture traces" in line.lower() or "capture_session.py" in line
        ]
        self.results.append(result)
        # What is done stays, should the machine's time run out.
        whole = json.dumps({**self.entry, "runs": self.results}) + "\n"
        self.out.write_text(whole)
        state = "failed" if "failed" in result else "done"
        print(f"{self.work.name} {name}: {state} in {result['seconds']} s", flush=True)
        if "failed" in result:
            print("\n".join(result["failed"][-12:]), flush=True)
        return result


Job = tuple[str, dict[str, Any]]


def counts(work: Path) -> list[Job]:
    """Graphs, traces, names, tokens: both runners, patched or not, eager or graphs.

    In float32, so that eager and compiled kernels come to the same tokens.
    """
    lean = {"capture_torch_profiler": True, "torch_profiler_with_stack": False}
    decode = {"compilation_config": _compilation(cudagraph_mode="FULL_DECODE_ONLY")}
    jobs: list[Job] = [
        ("v2", {"profiler": lean}),
        ("v1", {"profiler": lean, "env": _V1}),
        ("v2-decode-only", {"profiler": lean, "engine": decode}),
        ("patched-off", {}),
        ("unpatched", {"tree": "unpatched"}),
        ("eager", {"tree": "unpatched", "engine": {"enforce_eager": True}}),
    ]
    for _, job in jobs:
        job["engine"] = {"dtype": "float32", **job.get("engine", {})}
    return jobs


def eagle(work: Path) -> list[Job]:
    """A speculator: its prefill and decode graphs beside the target's."""
    lean = {"capture_torch_profiler": True, "torch_profiler_with_stack": False}
    engine = {
        "dtype": "float32",
        "compilation_config": _compilation(sizes=[1, 2, 3, 4, 8, 16]),
        "speculative_config": {
            "method": "eagle",
            "model": str(work / "models" / "eagle"),
            "num_speculative_tokens": 2,
        },
    }
    return [("v2-eagle", {"profiler": lean, "engine": engine})]


def timing(work: Path) -> list[Job]:
    """Seconds to capture, off and on, in one process, the settings in turn."""
    many = [*range(1, 9), *range(16, 513, 8)]
    engine = {"compilation_config": _compilation(sizes=many), "max_num_seqs": 256}
    job = {"profiler": {}, "engine": engine, "rounds": _settings(), "repeats": 5}
    return [("v2-timing", job)]


def timing_v1(work: Path) -> list[Job]:
    """The same of the legacy runner."""
    [(_, job)] = timing(work)
    return [("v1-timing", {**job, "env": _V1, "repeats": 3})]


def _settings() -> dict[str, dict[str, Any]]:
    on: dict[str, Any] = {"capture_torch_profiler": True}
    return {
        "off": {"capture_torch_profiler": False},
        **{
            stacks: {**on, "capture_torch_profiler_stacks": stacks}
            for stacks in ("none", "first", "all")
        },
    }


SETS = {"counts": counts, "eagle": eagle, "timing": timing, "timing-v1": timing_v1}


def _compilation(sizes: Sequence[int] = _SIZES, **more: Any) -> dict[str, Any]:
    return {"custom_ops": ["none"], "cudagraph_capture_sizes": list(sizes), **more}


def _engine(work: Path) -> dict[str, Any]:
    return {
        "model": str(work / "models" / "qwen3"),
        "skip_tokenizer_init": True,
        "attention_config": {"backend": "TRITON_ATTN"},
        "compilation_config": _compilation(),
        "max_model_len": 1024,
        "max_num_seqs": 64,
        "kv_cache_memory_bytes": 1 << 30,
        # Several processes share the GPU.
        "gpu_memory_utilization": 0.06,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, run, write; 1 when a run failed."""
    parser = argparse.ArgumentParser(
        prog="tests/gpu/on_device.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--packed", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/patchkit-gpu"))
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes at a time; 1 for timings"
    )
    parser.add_argument("--set", dest="sets", action="append", choices=SETS)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    options = parser.parse_args(argv)
    sys.path.insert(0, str(HERE))
    from small_models import make_eagle, make_qwen3

    sets = options.sets or ["counts"]
    jobs = []
    for version in options.versions:
        out = options.out / f"{version}-{'-'.join(sets)}.json"
        device = Device(options.packed, version, options.work, out)
        make_qwen3(device.work / "models" / "qwen3")
        make_eagle(device.work / "models" / "eagle")
        for name in sets:
            jobs += [
                (place, device, *job)
                for place, job in enumerate(SETS[name](device.work))
            ]
    # The first jobs of every release before the next ones of any.
    jobs.sort(key=lambda job: job[0])
    with ThreadPoolExecutor(options.jobs) as executor:
        results = list(executor.map(lambda job: job[1].run(job[2], **job[3]), jobs))
    return int(any("failed" in each for each in results))


if __name__ == "__main__":
    sys.exit(main())
