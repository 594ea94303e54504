"""Turns what tests/gpu/on_device.py wrote into results that are committed."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit import gpu_checks
from patchkit.errors import Refused, UsageError
from patchkit.gpu_results import (
    GpuResult,
    GraphResult,
    GraphRun,
    Manifest,
    Runner,
    Setting,
    TimingResult,
    TimingRun,
    Tokens,
)

_RUNS = {
    "counts": ("eager", "unpatched", "patched-off", "v2", "v1", "v2-decode-only"),
    "eagle": ("v2-eagle",),
    "timing": ("v2-timing",),
    "timing-v1": ("v1-timing",),
}
_CAPTURED = re.compile(r"graphs captured: ([^)]*)\)")


class _Raw(BaseModel):
    """What is not named is not needed: the harness may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RawRound(_Raw):
    """One capture of all graphs, with one setting."""

    setting: str
    seconds: float
    parts: dict[str, float]
    files: int | None = None
    bytes: int | None = None


class RawRun(_Raw):
    """One process."""

    name: str
    tree: Literal["patched", "unpatched"]
    gpu: str
    torch: str
    graphs: int
    capture_seconds: list[float]
    tokens: list[list[int]]
    distinct_tokens: int
    runner: Runner
    profiler_config: dict[str, Any] | None
    environment: dict[str, str]
    log: list[str]
    # What the process had in its environment, whoever put it there.
    runner_pin: str | None = None
    traces: int | None = None
    trace_bytes: int | None = None
    manifest: list[dict[str, Any]] | None = None
    manifest_fits_files: bool | None = None
    modes: dict[str, int] | None = None
    without_begin_and_end: list[str] | None = None
    without_their_annotation: list[str] | None = None
    rounds: list[RawRound] | None = None

    @property
    def is_traced(self) -> bool:
        """Whether the folder of traces was asked for and read."""
        return bool((self.profiler_config or {}).get("capture_torch_profiler"))

    @property
    def captured(self) -> dict[str, int]:
        """Graphs by mode, from the first line of the log that has them."""
        for line in self.log:
            if found := _CAPTURED.search(line):
                words = re.findall(r"(\d+) (\w+)", found[1])
                return {mode: int(count) for count, mode in words}
        return {}


class RawFile(_Raw):
    """All runs of one version."""

    release: str
    version: str
    patch_set: str
    torch: str
    runs: list[dict[str, Any]]


def collect(file: Path) -> list[GpuResult]:
    """The results of every set in one file of raw results.

    Raises Refused, with one line, when a run failed, or a run or a figure is missing.
    """
    try:
        raw = RawFile.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise UsageError(f"{file.name}: {_fault(error)}") from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    runs = [_read_run(file.name, entry) for entry in raw.runs]
    by_name = {run.name: run for run in runs}
    if len(by_name) < len(runs):
        twice = Counter(run.name for run in runs).most_common(1)[0][0]
        raise Refused(f"{file.name}: run {twice} stands twice")
    for what in ("gpu", "torch"):
        if len(words := sorted({getattr(run, what) for run in runs})) > 1:
            raise Refused(f"{file.name}: more than one {what}: {', '.join(words)}")
    return [
        _result(raw, name, chosen)
        for name, chosen in _split(file.name, by_name).items()
    ]


def _split(file: str, runs: dict[str, RawRun]) -> dict[str, list[RawRun]]:
    """Runs by set, those of a set in order: the harness may run some side by side."""
    known = {name for names in _RUNS.values() for name in names}
    if unknown := sorted(set(runs) - known):
        raise Refused(f"{file}: run {unknown[0]} belongs to no set")
    sets: dict[str, list[RawRun]] = {}
    for name, names in _RUNS.items():
        if runs.keys().isdisjoint(names):
            continue
        if missing := [each for each in names if each not in runs]:
            raise Refused(f"{file}: incomplete: no run {', '.join(missing)}")
        sets[name] = [runs[each] for each in names]
    if not sets:
        raise Refused(f"{file}: incomplete: no runs")
    return sets


def _read_run(file: str, entry: dict[str, Any]) -> RawRun:
    name = entry.get("name")
    if "failed" in entry:
        last = (entry["failed"] or ["without a word"])[-1]
        raise Refused(f"{file}: run {name} failed: {last}")
    try:
        run = RawRun.model_validate(entry)
    except ValidationError as error:
        raise Refused(f"{file}: run {name} is incomplete: {_fault(error)}") from None
    wanted = ["rounds"] if run.name.endswith("-timing") else []
    if run.is_traced:
        wanted += ["traces", "trace_bytes", "manifest", "manifest_fits_files", "modes"]
        wanted += ["without_begin_and_end", "without_their_annotation"]
    for key in wanted:
        if getattr(run, key) is None:
            raise Refused(f"{file}: run {name} is incomplete: it has no {key}")
    if wanted and not run.captured:
        raise Refused(
            f"{file}: run {name} is incomplete: no line of its log has the graphs "
            "captured"
        )
    settings = [each.setting for each in run.rounds or ()]
    if settings and "off" not in settings:
        raise Refused(f"{file}: run {name} is incomplete: no round with setting off")
    return run


def _fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(map(str, fault["loc"]))
    return f"{where}: {fault['msg']}" if where else fault["msg"]


def _result(raw: RawFile, name: str, runs: Sequence[RawRun]) -> GpuResult:
    common: dict[str, Any] = {
        "set": name,
        "release": raw.release,
        "version": raw.version,
        "patch_set": raw.patch_set,
        "gpu": runs[0].gpu,
        "torch": runs[0].torch,
        "checks": gpu_checks.whole_checks(name, runs, raw.torch),
    }
    if name.startswith("timing"):
        return TimingResult(**common, runs=[_timing_run(run) for run in runs])
    unpatched = next((run for run in runs if run.name == "unpatched"), None)
    return GraphResult(**common, runs=[_graph_run(run, unpatched) for run in runs])


def _graph_run(run: RawRun, unpatched: RawRun | None) -> GraphRun:
    equal = None
    if unpatched is not None and run is not unpatched:
        equal = gpu_checks.count_equal(run.tokens, unpatched.tokens)
    text = json.dumps(run.tokens, separators=(",", ":"))
    tokens = Tokens(
        digest=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
        prompts=len(run.tokens),
        distinct=run.distinct_tokens,
        equal_prompts=equal,
    )
    return GraphRun(
        name=run.name,
        tree=run.tree,
        runner=run.runner,
        environment=run.environment,
        profiler_config=run.profiler_config,
        counter=run.graphs,
        capture_seconds=run.capture_seconds,
        tokens=tokens,
        captured=run.captured if run.is_traced else None,
        traces=run.traces,
        traces_by_mode=run.modes,
        trace_bytes=run.trace_bytes,
        checks=gpu_checks.run_checks(run, unpatched),
        manifest=None if run.manifest is None else compact(run.manifest),
    )


def compact(entries: Sequence[dict[str, Any]]) -> Manifest:
    """A manifest in which what all entries have alike stands once."""
    columns = list(dict.fromkeys(key for entry in entries for key in entry))
    same = {
        key: entries[0][key]
        for key in columns
        if all(key in entry and entry[key] == entries[0][key] for entry in entries)
    }
    columns = [key for key in columns if key not in same]
    rows = [[entry.get(key) for key in columns] for entry in entries]
    return Manifest(same=same, columns=columns, rows=rows)


def _timing_run(run: RawRun) -> TimingRun:
    rounds = run.rounds or []
    names = list(dict.fromkeys(each.setting for each in rounds))
    base = median(each.seconds for each in rounds if each.setting == "off")
    return TimingRun(
        name=run.name,
        runner=run.runner,
        environment=run.environment,
        captured=run.captured,
        settings={
            name: _setting([each for each in rounds if each.setting == name], base)
            for name in names
        },
        checks=gpu_checks.timing_checks(run),
    )


def _setting(rounds: Sequence[RawRound], base: float) -> Setting:
    middle = median(each.seconds for each in rounds)
    return Setting(
        seconds=[each.seconds for each in rounds],
        median=middle,
        ratio_to_off=round(middle / base, 2),
        files=[each.files for each in rounds if each.files is not None],
        bytes=[each.bytes for each in rounds if each.bytes is not None],
        parts={
            part: round(median(each.parts.get(part, 0) for each in rounds), 4)
            for part in dict.fromkeys(part for each in rounds for part in each.parts)
        },
    )
