"""What the results of evidence/ show, release by release: a table for the README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patchkit.gpu_results import (
    GpuResult,
    GraphResult,
    GraphRun,
    TimingResult,
    all_checks,
)

_NONE = "–"
_SETTINGS = ("none", "first", "all")
_HEAD = (
    *("release", "GPU, torch", "V2 runner: graphs, a trace each", "V1 runner"),
    *("V2 with EAGLE", "tokens as unpatched", "eager as graphs"),
    *("seconds to capture, off", "stacks none", "first", "all"),
    *("checks that hold", "patch set"),
)


def gpu_table(results: Mapping[str, GpuResult]) -> str:
    """A Markdown table: a row a version and GPU, from every set that was run."""
    groups: dict[tuple[str, str], list[GpuResult]] = {}
    for result in results.values():
        groups.setdefault((result.version, result.gpu), []).append(result)
    rows = [_HEAD, ["---"] * len(_HEAD)]
    rows += [_row(groups[key]) for key in sorted(groups, key=_order)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(results: Sequence[GpuResult]) -> list[str]:
    first = results[0]
    checks = [holds for result in results for holds in all_checks(result).values()]
    runs = {
        run.name: run
        for result in results
        if isinstance(result, GraphResult)
        for run in result.runs
    }
    patched = [run for run in runs.values() if run.tree == "patched"]
    return [
        first.version,
        f"{first.gpu.split()[-1]}, {first.torch}",
        _graphs(runs.get("v2")),
        _graphs(runs.get("v1")),
        _graphs(runs.get("v2-eagle")),
        _tokens([run for run in patched if run.tokens.equal_prompts is not None]),
        _tokens([runs["eager"]] if "eager" in runs else []),
        *_timing(results),
        f"{sum(checks)} of {len(checks)}",
        ", ".join(
            dict.fromkeys(each.patch_set.partition(":")[2][:12] for each in results)
        ),
    ]


def _graphs(run: GraphRun | None) -> str:
    if run is None or run.captured is None:
        return _NONE
    text = ", ".join(f"{count} {mode}" for mode, count in run.captured.items())
    if not run.checks.get("traces_equal_graphs_by_mode"):
        text += f"; but {run.traces} traces"
    return text


def _tokens(runs: Sequence[GraphRun]) -> str:
    """Prompts, of the run in which the fewest are equal."""
    if not runs:
        return _NONE
    fewest = min(runs, key=lambda run: run.tokens.equal_prompts or 0).tokens
    text = f"{fewest.equal_prompts} of {fewest.prompts} prompts"
    return text if len(runs) == 1 else f"{text}, {len(runs)} runs"


def _timing(results: Sequence[GpuResult]) -> list[str]:
    """The V2 runner's median without traces, and others as ratios to it."""
    for result in results:
        if not isinstance(result, TimingResult):
            continue
        for run in result.runs:
            if run.runner == "v2":
                ratios = [
                    run.ratio(name) if name in run.settings else _NONE
                    for name in _SETTINGS
                ]
                graphs = sum(run.captured.values())
                return [f"{run.settings['off'].median:.1f}, {graphs} graphs", *ratios]
    return [_NONE] * (len(_SETTINGS) + 1)


def _order(key: tuple[str, str]) -> tuple[list[int], str]:
    return [int(part) for part in key[0].split(".") if part.isdigit()], key[1]
