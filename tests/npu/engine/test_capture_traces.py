"""Traces of the captures of ACL graphs, by torch_npu's own profiler."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Reference
from small_engine import SIZES, engine, generate, write_model

PROMPTS, COUNTS = [[1, 2, 3], [4, 5]], [4, 6]
MODES = ("PIECEWISE", "FULL")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """What vLLM's profiler logs, at WARNING and above."""
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    # vLLM's loggers do not propagate to the root, where caplog listens.
    logger, handler = logging.getLogger("vllm.profiler"), Keep()
    logger.addHandler(handler)
    yield seen
    logger.removeHandler(handler)


def _profiler(folder: Path, **settings: Any) -> dict[str, Any]:
    return {
        "profiler": "torch",
        "torch_profiler_dir": str(folder),
        "capture_torch_profiler": True,
        "torch_profiler_with_stack": False,
        **settings,
    }


def _events(trace: Path) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def _inside(event: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """Whether another event lies within that one's time, on the same thread."""
    # torch_npu writes microseconds as text.
    begin, end = float(event["ts"]), float(event["ts"]) + event["dur"]

    def is_inside(other: dict[str, Any]) -> bool:
        return begin <= float(other.get("ts", -1)) <= end

    return is_inside


def test_a_trace_for_each_graph(model: Path, tmp_path: Path) -> None:
    profiler = _profiler(tmp_path, capture_torch_profiler_stacks="first")
    with engine(model, "FULL_AND_PIECEWISE", profiler_config=profiler) as llm:
        answers = generate(llm, PROMPTS, COUNTS)
    Reference(model, torch.float32).check(PROMPTS, answers)
    folder = tmp_path / "capture_traces"
    names = {
        f"dp0_pp0_tp0.capture_{size}_{mode}.json.gz" for size in SIZES for mode in MODES
    }
    # No directory of torch_npu's profiles is left.
    assert {file.name for file in folder.iterdir()} == {
        *names,
        "execution_details.json",
    }
    index = json.loads((folder / "execution_details.json").read_text())
    assert {entry["file"] for entry in index} == names
    for entry in index:
        assert entry["annotation"] == f"capture_{entry['batch_size']}_{entry['mode']}"
        events = _events(folder / entry["file"])
        (annotation,) = [e for e in events if e["name"] == entry["annotation"]]
        inside = [e for e in filter(_inside(annotation), events) if e.get("cat")]
        operators = {event["name"] for event in inside if event["cat"] == "cpu_op"}
        assert {"npu::npu_swiglu", "npu::npu_rms_norm"} <= operators
        attends = "npu::npu_fused_infer_attention_score" in operators
        assert attends == (entry["mode"] == "FULL"), sorted(operators)
        has_stacks = any("Call stack" in event["args"] for event in inside)
        # The largest size is captured first.
        assert has_stacks == entry["with_stack"] == (entry["batch_size"] == SIZES[-1])


def test_a_profile_that_cannot_be_parsed_is_an_error_and_no_more(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    from vllm.profiler import npu_capture_profiler

    parses = "import sys; print('parsed', len(sys.argv)); sys.exit('out of order')"
    monkeypatch.setattr(npu_capture_profiler, "_PARSE", parses)
    profiler = _profiler(tmp_path)
    with engine(model, "FULL_DECODE_ONLY", profiler_config=profiler) as llm:
        answers = generate(llm, PROMPTS, COUNTS)
    Reference(model, torch.float32).check(PROMPTS, answers)
    (line,) = [text for text in messages if "Cannot write 3 capture traces" in text]
    assert line.endswith("out of order")
    assert any("3 of 3 graphs captured" in text for text in messages)
    # What was recorded is kept where the message says.
    (kept,) = (tmp_path / "capture_traces").glob(".npu_profiles_*")
    assert str(kept) in line
    assert len(list(kept.iterdir())) == len(SIZES)


def test_a_truncated_trace_is_an_error(tmp_path: Path) -> None:
    from vllm.profiler.npu_capture_profiler import NPUCaptureProfiler

    class Profiles:
        def trace_of(self, name: str) -> str:
            return str(tmp_path / name)

    (tmp_path / "graph1").write_text('[{"name": "a"}, {"na')
    profiler = NPUCaptureProfiler(Profiles(), "graph1", None)
    with pytest.raises(OSError, match="incomplete"):
        profiler.export_chrome_trace(str(tmp_path / "out.json"))
