"""What the runs on a GPU have to show, as booleans computed from their figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patchkit.gpu_collect import RawRun

PIN = "VLLM_USE_V2_MODEL_RUNNER"
# Runs whose engine has the unpatched run's options, so as many graphs.
_LIKE_UNPATCHED = ("patched-off", "v2", "v1")
_MODE = re.compile(
    r"((?:\w+_)?(?:FULL|PIECEWISE))(_LORA\d+)?(_UNIFORM\d+|_MIXED)?(_\d+)?"
)
_LOG_LINES = ("Tracing the graphs ", "Wrote ")


def count_equal(tokens: Sequence[Any], others: Sequence[Any]) -> int:
    """Prompts with the same tokens."""
    return sum(a == b for a, b in zip(tokens, others, strict=True))


def run_checks(run: RawRun, unpatched: RawRun | None) -> dict[str, bool]:
    """The checks of one run that counts graphs."""
    checks: dict[str, bool] = {}
    if unpatched is not None and run is not unpatched:
        checks["tokens_as_unpatched"] = run.tokens == unpatched.tokens
        if run.name in _LIKE_UNPATCHED:
            checks["counter_as_unpatched"] = run.graphs == unpatched.graphs
    if run.is_traced:
        entries = run.manifest or []
        words = Counter(mode_word(str(entry.get("mode"))) for entry in entries)
        checks |= {
            "traces_equal_graphs_by_mode": words == run.captured
            and run.traces == sum(run.captured.values()),
            "begin_and_end_in_every_trace": run.without_begin_and_end == [],
            "own_annotation_in_every_trace": run.without_their_annotation == [],
            "manifest_lists_every_file": run.manifest_fits_files is True
            and len(entries) == run.traces,
            "manifest_classes_every_file": _is_classed(entries, run.runner),
            "log_has_no_complaint": all(
                line.startswith(_LOG_LINES) for line in run.log
            ),
        }
        if not any(word.startswith("SPEC_") for word in words):
            checks["counter_fits_modes"] = _pieces(run) is not None
    return checks


def mode_word(mode: str) -> str:
    """A mode without what tells graphs of one size apart: LoRA, uniformity, number."""
    found = _MODE.fullmatch(mode)
    return found[1] if found else mode


def _is_classed(entries: Sequence[dict[str, Any]], runner: str) -> bool:
    """Whether each entry says what its file is, and no two say the same."""
    keys = [(entry.get("batch_size"), entry.get("mode")) for entry in entries]
    return len(set(keys)) == len(entries) and all(
        isinstance(size, int)
        and _MODE.fullmatch(str(mode)) is not None
        and entry.get("annotation") == f"capture_{size}_{mode}"
        and str(entry.get("file")).startswith(
            f"{entry.get('rank')}.{entry['annotation']}.json"
        )
        and mode_word(str(mode)).endswith(str(entry.get("cudagraph_mode")))
        and entry.get("subsystem") in ("target", "speculator", "encoder")
        and entry.get("runner") == runner
        for entry, (size, mode) in zip(entries, keys, strict=True)
    )


def _pieces(run: RawRun) -> int | None:
    """Device graphs that a PIECEWISE capture makes, by vLLM's counter; None: no fit.

    The counter knows nothing of traces: a FULL capture counts one.
    """
    rest = run.graphs - run.captured.get("FULL", 0)
    captures = run.captured.get("PIECEWISE", 0)
    if not captures:
        return 0 if rest == 0 else None
    return rest // captures if rest > 0 and rest % captures == 0 else None


def whole_checks(
    name: str, runs: Sequence[RawRun], pinned_torch: str
) -> dict[str, bool]:
    """The checks that take all runs of a set."""
    by_name = {run.name: run for run in runs}
    pinned = [run for run in runs if run.name.partition("-")[0] == "v1"]
    unpinned = [run for run in runs if run not in pinned]
    checks = {"torch_as_pinned": runs[0].torch.partition("+")[0] == pinned_torch}
    if unpinned:
        checks["v2_selected_without_a_pin"] = all(
            run.runner == "v2" and PIN not in run.environment and not run.runner_pin
            for run in unpinned
        )
    if pinned:
        checks["v1_selected_by_its_pin"] = all(
            run.runner == "v1" and run.environment.get(PIN) == "0" for run in pinned
        )
    if name == "counts":
        v2, v1 = by_name["v2"], by_name["v1"]
        checks["v1_traces_as_v2"] = v1.traces == v2.traces and _keys(v1) == _keys(v2)
        pieces = {_pieces(run) for run in runs if run.is_traced} - {0}
        checks["pieces_alike_in_all_runs"] = len(pieces) == 1 and None not in pieces
    if name == "eagle":
        checks["speculator_and_target_told_apart"] = all(map(_is_told_apart, runs))
    return checks


def _keys(run: RawRun) -> set[tuple[Any, Any]]:
    return {(each.get("batch_size"), each.get("mode")) for each in run.manifest or ()}


def _is_told_apart(run: RawRun) -> bool:
    """Whether there are graphs of both, and a speculator's word is its own."""
    entries = run.manifest or []
    has_word = {
        subsystem: {
            str(entry.get("mode")).startswith("SPEC_")
            for entry in entries
            if entry.get("subsystem") == subsystem
        }
        for subsystem in ("target", "speculator")
    }
    return has_word == {"target": {False}, "speculator": {True}}


def timing_checks(run: RawRun) -> dict[str, bool]:
    """The checks of one run that is timed."""
    rounds = run.rounds or []
    traced = [each for each in rounds if each.setting != "off"]
    counts = Counter(each.setting for each in rounds)
    graphs = sum(run.captured.values())
    return {
        "as_many_rounds_of_each_setting": len(set(counts.values())) == 1,
        "off_leaves_no_trace": all(
            not each.files for each in rounds if each.setting == "off"
        ),
        "a_trace_for_each_graph_in_every_round": bool(traced)
        and all(each.files == graphs for each in traced),
    }
