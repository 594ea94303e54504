#!/usr/bin/env python3
"""Draw what capture traces cost: seconds to capture, by release and setting, as PNG.

Bars are medians, points the single rounds of the timing results of evidence/, numbers
the ratio to the setting off. Needs matplotlib: pip install --group plots.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tools"))

from patchkit.command_line import run as run_main  # noqa: E402
from patchkit.errors import EXIT_OK, EnvironmentProblem, UsageError  # noqa: E402
from patchkit.gpu_results import (  # noqa: E402
    EVIDENCE,
    TimingResult,
    TimingRun,
    load_results,
)

# Colours that differ in lightness too.
_SETTINGS = {
    "off": ("#9aa0a6", "off"),
    "none": ("#8ecae6", "on, no stacks"),
    "first": ("#219ebc", "on, stacks of the first"),
    "all": ("#023047", "on, stacks of all"),
}
_BAR = 0.8
_GROUPS_A_ROW = 6

Run = tuple[TimingResult, TimingRun]


def draw(runs: Sequence[Run], out: Path) -> None:
    """One group of bars a release and runner, some groups a row."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise EnvironmentProblem(
            "no matplotlib here", hint="pip install --group plots"
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    present = [
        name for name in _SETTINGS if any(name in run.settings for _, run in runs)
    ]
    across = min(len(runs), _GROUPS_A_ROW)
    rows = [runs[n : n + across] for n in range(0, len(runs), across)]
    figure, axes = plt.subplots(
        len(rows),
        figsize=(max(7.5, 1 + 0.5 * len(present) * across), 1 + 3.2 * len(rows)),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for [each], row in zip(axes, rows, strict=True):
        _draw_row(each, row, present)
        each.set_xlim(-0.6, across - 0.4)
    top = max(
        second
        for _, run in runs
        for setting in run.settings.values()
        for second in setting.seconds
    )
    axes[0][0].set_ylim(0, top * 1.15)
    gpus = ", ".join(sorted({result.gpu for result, _ in runs}))
    figure.suptitle(f"Time to capture, and its ratio to off ({gpus})", fontsize=11)
    figure.legend(
        [plt.Rectangle((0, 0), 1, 1, color=_SETTINGS[name][0]) for name in present],
        [_SETTINGS[name][1] for name in present],
        loc="outside lower center",
        ncols=len(present),
        frameon=False,
    )
    figure.savefig(out, dpi=150)


def _draw_row(axes: Any, runs: Sequence[Run], present: Sequence[str]) -> None:
    for number, (_, run) in enumerate(runs):
        bars = [name for name in present if name in run.settings]
        for place, name in enumerate(bars):
            setting = run.settings[name]
            step = _BAR / len(bars)
            x = number - _BAR / 2 + step * (place + 0.5)
            color = _SETTINGS[name][0]
            axes.bar(x, setting.median, step * 0.9, color=color, zorder=2)
            axes.plot(
                [x] * len(setting.seconds),
                setting.seconds,
                "o",
                color="white",
                markeredgecolor="black",
                markersize=4,
                zorder=3,
            )
            axes.annotate(
                run.ratio(name) if name != "off" else "1",
                (x, max(setting.seconds)),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
    axes.set_xticks(range(len(runs)), [_label(*each) for each in runs])
    axes.set_ylabel("seconds, all graphs")
    axes.grid(axis="y", color="#dddddd", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)


def _label(result: TimingResult, run: TimingRun) -> str:
    graphs = sum(run.captured.values())
    return f"{result.version}, {run.runner.upper()}\n{graphs} graphs"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and draw; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tests/gpu/plot_capture_time.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--evidence", type=Path, default=EVIDENCE)
    parser.add_argument(
        "--out", type=Path, default=PROJECT / "evidence" / "capture-time.png"
    )
    options = parser.parse_args(argv)
    results = [
        result
        for result in load_results(options.evidence).values()
        if isinstance(result, TimingResult)
    ]
    results.sort(key=lambda each: [int(part) for part in each.release.split(".")])
    runs = [
        (result, run)
        for result in results
        for run in sorted(result.runs, key=lambda run: run.runner, reverse=True)
    ]
    if not runs:
        raise UsageError(f"{options.evidence}: no v*-timing.json")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(runs, options.out)
    print(f"written: {options.out}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(run_main(main))
