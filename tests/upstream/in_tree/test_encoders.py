"""Encoder graphs, of the V1 runner and wherever else the release captures them."""

from __future__ import annotations

from pathlib import Path

from encoders import TWO_PATHS, encoder_manager
from reader import merged, read_index, read_traces
from stand_ins import BEGIN, END, make_config
from upstream_api import ENCODER_AXES, ENCODER_PATHS, capture_encoder
from v1_runner import runner_of

from conftest import Log


def test_encoder_graphs_by_budget(tmp_path: Path, log: Log) -> None:
    config = make_config(tmp_path, sizes=(2,))
    runner_of(config, encoder_manager(config)).capture_model()
    index = [e for e in read_index(tmp_path) if e["subsystem"] == "encoder"]
    # Releases differ in which budget is first.
    assert sorted(
        (e["batch_size"], e["mode"], e["num_reqs"], e["manager"]) for e in index
    ) == [(size, "ENC_DEFAULT_FULL", 4, "EncoderCudaGraphManager") for size in (16, 32)]
    traces = read_traces(tmp_path)
    for entry in index:
        trace = traces[entry["file"]]
        assert trace.annotations == [(entry["batch_size"], "ENC_DEFAULT_FULL")]
        begin, end = trace.span(entry["annotation"])
        for name in (BEGIN, END, "aten::cos", "aten::copy_"):
            first, last = trace.span(name)
            assert begin <= first <= last <= end
        assert "aten::sin" not in trace.names
    assert set(merged(tmp_path)) == {"2_PIECEWISE", "2_FULL"}
    assert log.of("ERROR") == []


@ENCODER_PATHS
def test_encoder_graphs_by_path(tmp_path: Path) -> None:
    config = make_config(tmp_path, sizes=(2,))
    runner_of(config, encoder_manager(config, TWO_PATHS)).capture_model()
    keys = [
        (e["batch_size"], e["mode"])
        for e in read_index(tmp_path)
        if e["subsystem"] == "encoder"
    ]
    assert keys == [
        *((size, "ENC_GLOBAL_FULL") for size in (32, 16)),
        *((size, "ENC_LOCAL_FULL") for size in (32, 16, 8)),
    ]


@ENCODER_AXES
def test_encoder_graphs_by_axis(tmp_path: Path, log: Log) -> None:
    config = make_config(tmp_path, sizes=(2,))
    axes = ((("wide",), ("tall",)), (("long",), ("short",)))
    runner_of(config, encoder_manager(config, axes=axes)).capture_model()
    # One budget has several graphs, which keep apart.
    endings = ("", "_MIXED", "_MIXED_2", "_MIXED_3")
    index = [e for e in read_index(tmp_path) if e["subsystem"] == "encoder"]
    assert [(e["batch_size"], e["mode"]) for e in index] == [
        (size, f"ENC_DEFAULT_FULL{ending}") for size in (32, 16) for ending in endings
    ]
    assert {e["file"] for e in index} <= set(read_traces(tmp_path))
    assert log.of("ERROR") == []


def test_encoder_graphs_outside_of_a_session(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    assert set(capture_encoder(encoder_manager(config))) == {16, 32}
    assert list(tmp_path.iterdir()) == []
