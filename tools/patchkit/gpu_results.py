"""Committed results of runs on a GPU: what is in a file of ``evidence/``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from patchkit.errors import UsageError
from patchkit.releases import PROJECT, Digest

Checks = dict[str, bool]
Runner = Literal["v1", "v2"]

EVIDENCE = PROJECT / "evidence"
# What tests/gpu/pack.py packs.
FLAVOUR = "capture"
_WIDTH = 88


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Manifest(_Table):
    """``execution_details.json``: fields alike in all entries, then a row an entry."""

    same: dict[str, Any]
    columns: list[str]
    rows: list[list[Any]]

    def entries(self) -> list[dict[str, Any]]:
        """The entries as the file in the folder of traces had them."""
        columns = self.columns
        return [
            {**self.same, **dict(zip(columns, row, strict=True))} for row in self.rows
        ]


class Tokens(_Table):
    """Greedy tokens: a digest of all, and how many prompts have the unpatched ones.

    ``equal_prompts`` is None where no unpatched run was made beside this one.
    """

    digest: Digest
    prompts: int
    distinct: int
    equal_prompts: int | None = None


class GraphRun(_Table):
    """One engine: what it captured, by the log, and what lay in the folder then.

    ``counter`` is vLLM's own count of device graphs, of which a PIECEWISE capture
    makes several.
    """

    name: str
    tree: Literal["patched", "unpatched"]
    runner: Runner
    environment: dict[str, str]
    counter: int
    capture_seconds: list[float]
    tokens: Tokens
    profiler_config: dict[str, Any] | None = None
    captured: dict[str, int] | None = None
    traces: int | None = None
    traces_by_mode: dict[str, int] | None = None
    trace_bytes: int | None = None
    checks: Checks
    manifest: Manifest | None = None


class Setting(_Table):
    """One setting's rounds: seconds to capture all graphs, and what the rounds wrote.

    ``parts`` has the median seconds of each call of the profiler.
    """

    seconds: list[float]
    median: float
    ratio_to_off: float
    files: list[int]
    bytes: list[int]
    parts: dict[str, float]


class TimingRun(_Table):
    """One engine that captured its graphs again and again, the settings in turn."""

    name: str
    runner: Runner
    environment: dict[str, str]
    captured: dict[str, int]
    settings: dict[str, Setting]
    checks: Checks

    def ratio(self, setting: str) -> str:
        """A setting's median as a multiple of the one of off, for people."""
        return f"×{self.settings[setting].median / self.settings['off'].median:.1f}"


class _Result(_Table):
    set: str
    release: str
    version: str
    patch_set: Digest
    gpu: str
    torch: str
    checks: Checks


class GraphResult(_Result):
    """Runs that count graphs and traces."""

    set: Literal["counts", "eagle"]
    runs: list[GraphRun]


class TimingResult(_Result):
    """Runs that are timed."""

    set: Literal["timing", "timing-v1"]
    runs: list[TimingRun]


GpuResult = GraphResult | TimingResult
SETS = ("counts", "eagle", "timing", "timing-v1")
_ADAPTER: TypeAdapter[GpuResult] = TypeAdapter(
    Annotated[GpuResult, Field(discriminator="set")]
)


def all_checks(result: GpuResult) -> dict[str, bool]:
    """Every check of a file, those of a run as ``run.check``."""
    found = dict(result.checks)
    for run in result.runs:
        found |= {f"{run.name}.{name}": holds for name, holds in run.checks.items()}
    return found


def result_name(result: GpuResult) -> str:
    """The file's name: release, GPU, set."""
    gpu = result.gpu.split()[-1].lower()
    return f"v{result.release}-{gpu}-{result.set}.json"


def result_text(result: GpuResult) -> str:
    """The file's text, in which a row of a manifest is a line."""
    return _layout(result.model_dump(exclude_defaults=True), 0) + "\n"


def load_results(folder: Path = EVIDENCE) -> dict[str, GpuResult]:
    """The results in a folder, by file name; raises UsageError for a broken one."""
    files = [file for name in SETS for file in folder.glob(f"v*-{name}.json")]
    return {file.name: _read(file) for file in sorted(files)}


def old_results(release: str, patch_set: str, folder: Path = EVIDENCE) -> Iterator[str]:
    """A line for each result of a release that another patch set gave."""
    for name, result in load_results(folder).items():
        if result.release == release and result.patch_set != patch_set:
            yield (
                f"evidence/{name}: older than the series: "
                f"its patch set is {result.patch_set}"
            )


def _read(file: Path) -> GpuResult:
    try:
        return _ADAPTER.validate_json(file.read_bytes())
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the file"
        raise UsageError(f"{file}: {where}: {fault['msg']}") from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None


def _layout(value: Any, indent: int) -> str:
    line = json.dumps(value)
    is_row = isinstance(value, list) and not any(
        isinstance(each, (dict, list)) for each in value
    )
    if not isinstance(value, (dict, list)) or is_row or indent + len(line) < _WIDTH:
        return line
    begin, end = "{}" if isinstance(value, dict) else "[]"
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key)}: {_layout(each, indent + 1)}"
            for key, each in value.items()
        ]
    else:
        parts = [_layout(each, indent + 1) for each in value]
    body = f",\n{inner}".join(parts)
    return f"{begin}\n{inner}{body}\n{' ' * indent}{end}"
