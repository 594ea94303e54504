"""Results of a GPU: collected, checked, committed, in the README, and told when old."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from raw_results import (
    DIGEST,
    PIN,
    counts,
    eagle,
    run_named,
    timing,
    timing_v1,
    written,
)

from patchkit.gpu_checks import mode_word
from patchkit.gpu_collect import collect
from patchkit.gpu_results import (
    all_checks,
    load_results,
    old_results,
    result_name,
    result_text,
)
from patchkit.gpu_table import gpu_table
from patchkit.releases import PROJECT, load_releases
from patchkit.series import load_series

COLLECT = PROJECT / "tests" / "gpu" / "collect.py"


def run_collect(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(COLLECT), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def false_checks(folder: Path, raw: dict[str, Any]) -> set[str]:
    [result] = collect(written(folder, raw))
    return {name for name, holds in all_checks(result).items() if not holds}


@pytest.mark.parametrize("make", [counts, timing, timing_v1, eagle])
def test_a_right_run_has_no_false_check(tmp_path: Path, make) -> None:
    [result] = collect(written(tmp_path, make()))
    assert set(all_checks(result).values()) == {True}
    assert result_name(result) == (f"v0.25-h200-{make.__name__.replace('_', '-')}.json")
    # What is committed is read as it was.
    (tmp_path / result_name(result)).write_text(result_text(result))
    assert load_results(tmp_path) == {result_name(result): result}


def test_a_manifest_is_kept_whole(tmp_path: Path) -> None:
    raw = counts()
    [result] = collect(written(tmp_path, raw))
    (tmp_path / result_name(result)).write_text(result_text(result))
    [kept] = load_results(tmp_path).values()
    run = next(each for each in kept.runs if each.name == "v2")
    assert run.manifest.entries() == run_named(raw, "v2")["manifest"]
    assert "file" not in run.manifest.same
    assert run.manifest.same["num_reqs"] is None


@pytest.mark.parametrize(
    ("run", "key", "value", "broken"),
    [
        ("patched-off", "tokens", [[1], [4, 5, 6]], "tokens_as_unpatched"),
        ("eager", "tokens", [[1], [4, 5, 6]], "tokens_as_unpatched"),
        ("v2", "graphs", 11, "counter_as_unpatched counter_fits_modes"),
        ("v2", "traces", 3, "traces_equal_graphs_by_mode v1_traces_as_v2"),
        ("v2", "without_begin_and_end", ["x"], "begin_and_end_in_every_trace"),
        ("v1", "without_their_annotation", ["x"], "own_annotation_in_every_trace"),
        ("v1", "manifest_fits_files", False, "manifest_lists_every_file"),
        ("v2-decode-only", "graphs", 6, "counter_fits_modes pieces_alike_in_all_runs"),
        ("v2-decode-only", "runner", "v1", "v2_selected_without_a_pin"),
        ("patched-off", "environment", PIN, "v2_selected_without_a_pin"),
        ("patched-off", "runner_pin", "1", "v2_selected_without_a_pin"),
        ("v1", "environment", {}, "v1_selected_by_its_pin"),
    ],
)
def test_a_wrong_figure_makes_its_check_false(
    tmp_path: Path, run: str, key: str, value: Any, broken: str
) -> None:
    raw = counts()
    run_named(raw, run)[key] = value
    found = {name.rpartition(".")[2] for name in false_checks(tmp_path, raw)}
    assert found >= set(broken.split())
    # And none of another matter.
    related = {"pieces_alike_in_all_runs", "manifest_lists_every_file"}
    assert found - set(broken.split()) <= related | {"manifest_classes_every_file"}


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        (0, "mode", "ELSE"),
        (0, "batch_size", None),
        (0, "annotation", "capture_9_PIECEWISE"),
        (0, "subsystem", "other"),
        (0, "runner", "v1"),
        (0, "file", "x.json.gz"),
    ],
)
def test_a_file_that_the_manifest_does_not_class(
    tmp_path: Path, place: int, key: str, value: Any
) -> None:
    raw = counts()
    run_named(raw, "v2")["manifest"][place][key] = value
    assert "v2.manifest_classes_every_file" in false_checks(tmp_path, raw)


def test_two_entries_that_say_the_same(tmp_path: Path) -> None:
    raw = counts()
    manifest = run_named(raw, "v2")["manifest"]
    manifest[1] = dict(manifest[0])
    assert "v2.manifest_classes_every_file" in false_checks(tmp_path, raw)


def test_graphs_of_a_mode_without_traces(tmp_path: Path) -> None:
    """The sum is right, a mode's is not."""
    raw = counts()
    log = run_named(raw, "v2")["log"]
    log[-1] = log[-1].replace("2 PIECEWISE, 2 FULL", "3 PIECEWISE, 1 FULL")
    found = false_checks(tmp_path, raw)
    assert "v2.traces_equal_graphs_by_mode" in found


def test_an_error_in_the_log(tmp_path: Path) -> None:
    raw = counts()
    run_named(raw, "v2")["log"].append("1 of 4 graphs left no trace")
    assert false_checks(tmp_path, raw) == {"v2.log_has_no_complaint"}


def test_a_speculator_without_a_word_of_its_own(tmp_path: Path) -> None:
    raw = eagle()
    for each in raw["runs"][0]["manifest"]:
        each["subsystem"] = "target"
    assert false_checks(tmp_path, raw) == {"speculator_and_target_told_apart"}


def test_rounds_that_differ(tmp_path: Path) -> None:
    raw = timing()
    raw["runs"][0]["rounds"][3]["files"] = 3
    raw["runs"][0]["rounds"].pop(0)
    assert false_checks(tmp_path, raw) == {
        "v2-timing.a_trace_for_each_graph_in_every_round",
        "v2-timing.as_many_rounds_of_each_setting",
    }


def test_medians_and_ratios(tmp_path: Path) -> None:
    [result] = collect(written(tmp_path, timing()))
    off, none = result.runs[0].settings.values()
    assert (off.median, off.files, off.parts) == (2.0, [], {})
    assert (none.median, none.ratio_to_off, none.files) == (6.0, 3.0, [4, 4, 4])
    assert none.parts == {"stop": 0.5}


def test_modes_of_graphs_of_one_size() -> None:
    for mode, word in {
        "FULL": "FULL",
        "FULL_LORA2": "FULL",
        "PIECEWISE_LORA1_MIXED": "PIECEWISE",
        "SPEC_PREFILL_FULL_UNIFORM3": "SPEC_PREFILL_FULL",
        "ENC_DEFAULT_FULL_MIXED_2": "ENC_DEFAULT_FULL",
        "NONE": "NONE",
    }.items():
        assert mode_word(mode) == word


def break_failed(raw: dict[str, Any]) -> None:
    raw["runs"][3]["failed"] = ["first line", "RuntimeError: no memory"]


def break_run_missing(raw: dict[str, Any]) -> None:
    del raw["runs"][1]


def break_no_manifest(raw: dict[str, Any]) -> None:
    del run_named(raw, "v2")["manifest"]


def break_no_tokens(raw: dict[str, Any]) -> None:
    del raw["runs"][0]["tokens"]


def break_no_log(raw: dict[str, Any]) -> None:
    run_named(raw, "v1")["log"] = []


def break_gpu(raw: dict[str, Any]) -> None:
    raw["runs"][0]["gpu"] = "NVIDIA A100"


def break_name(raw: dict[str, Any]) -> None:
    raw["runs"][0]["name"] = "other"


def break_twice(raw: dict[str, Any]) -> None:
    raw["runs"].append(raw["runs"][0])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (break_failed, "run v2 failed: RuntimeError: no memory"),
        (break_run_missing, "incomplete: no run unpatched"),
        (break_no_manifest, "run v2 is incomplete: it has no manifest"),
        (break_no_tokens, "run eager is incomplete: tokens: Field required"),
        (break_no_log, "run v1 is incomplete: no line of its log"),
        (break_gpu, "more than one gpu: NVIDIA A100, NVIDIA H200"),
        (break_name, "run other belongs to no set"),
        (break_twice, "run eager stands twice"),
        (lambda raw: raw["runs"].clear(), "incomplete: no runs"),
    ],
)
def test_what_is_refused(tmp_path: Path, spoil, said: str) -> None:
    raw = counts()
    spoil(raw)
    out = tmp_path / "out"
    done = run_collect("--out", out, written(tmp_path, raw))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"raw.json: {said}" in done.stderr
    assert not out.exists()


def test_no_rounds_without_traces(tmp_path: Path) -> None:
    raw = timing()
    del raw["runs"][0]["rounds"][::2]
    done = run_collect("--out", tmp_path / "out", written(tmp_path, raw))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no round with setting off" in done.stderr


def test_the_command(tmp_path: Path) -> None:
    """A false check is written, and said; sets of one file go into several."""
    raw = counts()
    raw["runs"] += timing()["runs"]
    out = tmp_path / "out"
    assert run_collect("--out", out, written(tmp_path, raw)).returncode == 0
    names = ["v0.25-h200-counts.json", "v0.25-h200-timing.json"]
    assert sorted(file.name for file in out.iterdir()) == names
    run_named(raw, "eager")["tokens"] = [[0], [4, 5, 6]]
    done = run_collect("--out", out, written(tmp_path, raw))
    assert done.returncode == 1
    assert f"{names[0]}: does not hold: eager.tokens_as_unpatched" in done.stdout
    eager = json.loads((out / names[0]).read_text())["runs"][0]
    assert eager["checks"] == {"tokens_as_unpatched": False}
    assert eager["tokens"]["equal_prompts"] == 1
    (tmp_path / "raw.json").write_text("{")
    assert run_collect("--out", out, tmp_path / "raw.json").returncode == 2


def test_the_table(tmp_path: Path) -> None:
    results = {}
    for raw in (counts(), timing(), timing_v1(), eagle()):
        [result] = collect(written(tmp_path, raw))
        results[result_name(result)] = result
    other = counts() | {"release": "0.9", "version": "0.9.0"}
    run_named(other, "v2")["traces"] = 3
    run_named(other, "v1")["tokens"] = [[0], [4, 5, 6]]
    [old] = collect(written(tmp_path, other))
    table = gpu_table({**results, "other": old}).splitlines()
    assert len({line.count("|") for line in table}) == 1
    first, second = table[2:]
    assert first.startswith("| 0.9.0 | H200, 2.11.0+cu130 | 2 PIECEWISE, 2 FULL; but 3")
    assert "| 1 of 2 prompts, 4 runs |" in first
    assert "| 2 FULL, 2 SPEC_DECODE_FULL |" in second
    assert "| 2.0, 4 graphs | ×3.0 | – | – |" in second
    counted = [len(all_checks(result)) for result in results.values()]
    assert second.endswith(f"| {sum(counted)} of {sum(counted)} | {'1' * 12} |")


def test_results_of_an_older_patch_set(tmp_path: Path) -> None:
    [result] = collect(written(tmp_path, timing()))
    (tmp_path / result_name(result)).write_text(result_text(result))
    assert list(old_results("0.25", DIGEST, tmp_path)) == []
    assert list(old_results("0.26", "sha256:", tmp_path)) == []
    [note] = old_results("0.25", "sha256:", tmp_path)
    assert note.startswith("evidence/v0.25-h200-timing.json: older than the series")


def test_verify_notes_exactly_the_older_ones(need) -> None:
    release = load_releases().find("0.25")
    digest = load_series(release).digest
    old = {
        name
        for name, result in load_results().items()
        if result.release == "0.25" and result.patch_set != digest
    }
    done = subprocess.run(
        [
            *(sys.executable, str(PROJECT / "tools" / "verify_hunks.py")),
            *("--version", "0.25", "--format", "json"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    need(done.returncode != 2, f"the pinned source: {done.stderr.strip()}")
    assert done.returncode == 0
    notes = [n for n in json.loads(done.stdout)["notes"] if n.startswith("evidence/")]
    assert {note.partition(": ")[0].removeprefix("evidence/") for note in notes} == old


def test_what_is_committed_reads_and_writes_alike() -> None:
    for name, result in load_results().items():
        assert result_name(result) == name
        text = (PROJECT / "evidence" / name).read_text()
        assert result_text(result) == text
        assert load_releases().find(result.version).name == result.release
        # No path of the machine that it ran on.
        assert "/tmp" not in text
