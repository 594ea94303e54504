"""The V1 runner's speculators, which it captures within its own captures."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from reader import merged, read_index, read_traces
from stand_ins import make_config, piecewise_work, warm_up_work
from v1_runner import runner_of
from vllm.compilation.counter import compilation_counter
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor
from vllm.profiler.capture_traces import (
    trace_capture_session,
    trace_drafter_capture,
    trace_v1_capture,
)
from vllm.v1.spec_decode.eagle import EagleProposer
from vllm.v1.worker import gpu_model_runner

from conftest import Log

FULL, PIECEWISE = CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE


class EagleDrafterProposer(EagleProposer):
    """A speculator whose dummy run captures, or warms up."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []

    def dummy_run(
        self, num_tokens: int, use_cudagraphs: bool, is_graph_capturing: bool, **_: Any
    ) -> None:
        self.calls.append((num_tokens, use_cudagraphs and is_graph_capturing))
        if use_cudagraphs and is_graph_capturing:
            with torch.profiler.record_function("mark::drafter"):
                piecewise_work()
        else:
            torch.tanh(torch.ones(3))


def with_real_dummy_run(runner: Any, enforce_eager: bool) -> EagleDrafterProposer:
    """Give ``runner`` the real ``_dummy_run`` with a model and a drafter."""
    del runner._dummy_run
    runner.drafter = EagleDrafterProposer()
    runner.speculative_config = MagicMock(enforce_eager=enforce_eager)
    runner.model_config = MagicMock(is_encoder_decoder=False)
    runner.scheduler_config = runner.vllm_config.scheduler_config
    runner.uniform_decode_query_len = 1
    runner.supports_mm_inputs = runner.enable_prompt_embeds = False
    runner.uses_mrope = runner.use_aux_hidden_state_outputs = False
    runner.uses_xdrope_dim = 0
    runner.input_ids = MagicMock(gpu=torch.zeros(64))
    runner.positions = torch.zeros(64)
    runner.optimistic_seq_lens_cpu = torch.zeros(64)
    runner.seq_lens = torch.zeros(64)
    runner.query_pos = runner.query_start_loc = MagicMock(np=np.zeros(65))
    runner.input_batch = MagicMock()
    runner._get_slot_mappings = lambda **_: (None, None)
    runner._get_cumsum_and_arange = lambda counts, _: np.cumsum(counts)
    runner._build_attention_metadata = lambda **_: ({}, None)
    runner.synchronize_input_prep = nullcontext
    runner.maybe_dummy_run_with_lora = lambda *_: nullcontext()
    runner.maybe_randomize_inputs = lambda *_, **__: nullcontext()
    runner._init_model_kwargs = dict
    runner._prepare_padding_mask = lambda *_: None
    runner.dcp_world_size = 1
    runner._register_layerwise_nvtx_hooks = lambda: None

    def decide(num_tokens: int, force_eager: bool, **_: Any) -> tuple[Any, ...]:
        mode = CUDAGraphMode.NONE if force_eager else runner.mode
        return mode, BatchDescriptor(num_tokens), False, None, None

    def model(input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        if gpu_model_runner.set_forward_context.mode == CUDAGraphMode.NONE:
            warm_up_work()
        else:
            with torch.profiler.record_function("mark::target"):
                piecewise_work()
        return torch.ones(len(input_ids), 2)

    runner._determine_batch_execution_and_padding = decide
    runner.model = model
    return runner.drafter


@pytest.mark.parametrize(
    ("mode", "enforce_eager"), [(PIECEWISE, False), (PIECEWISE, True), (FULL, False)]
)
def test_a_drafter_has_traces_of_its_own(
    tmp_path: Path,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    mode: CUDAGraphMode,
    enforce_eager: bool,
) -> None:
    """V1 captures a drafter's graph within the run that captures the target's."""

    def set_forward_context(
        *_: Any, cudagraph_runtime_mode: CUDAGraphMode, **__: Any
    ) -> nullcontext[None]:
        set_forward_context.mode = cudagraph_runtime_mode  # type: ignore[attr-defined]
        return nullcontext()

    monkeypatch.setattr(gpu_model_runner, "set_forward_context", set_forward_context)
    config = make_config(tmp_path, mode=mode)
    runner = runner_of(config, warmups=1)
    runner.mode = mode
    drafter = with_real_dummy_run(runner, enforce_eager)
    captures = mode == PIECEWISE and not enforce_eager
    runner.capture_model()
    assert drafter.calls == [
        call for size in (4, 2, 1) for call in ((size, False), (size, captures))
    ]
    index = read_index(tmp_path)
    words = [("target", mode.name)]
    if captures:
        words.append(("speculator", "SPEC_EAGLEDRAFTER_PIECEWISE"))
    assert [(e["batch_size"], e["subsystem"], e["mode"]) for e in index] == [
        (size, *word) for size in (4, 2, 1) for word in words
    ]
    traces = read_traces(tmp_path)
    for entry in index:
        names = traces[entry["file"]].names
        is_target = entry["subsystem"] == "target"
        assert ("mark::target" in names) is is_target
        assert ("mark::drafter" in names) is not is_target
        assert "aten::sin" not in names
        assert traces[entry["file"]].annotations == [
            (entry["batch_size"], entry["mode"])
        ]
    assert set(merged(tmp_path)) == {f"{size}_{mode.name}" for size in (4, 2, 1)}
    assert log.of("ERROR") == []


def test_an_exception_in_a_drafters_capture(tmp_path: Path) -> None:
    """The target's graph was captured whole; its trace is kept, no profiler is left."""
    config = make_config(tmp_path)
    with (
        pytest.raises(ValueError, match="of the drafter"),
        trace_capture_session(config, "v1"),
        trace_v1_capture(BatchDescriptor(4), PIECEWISE),
    ):
        compilation_counter.num_cudagraph_captured += 1
        with trace_drafter_capture(EagleDrafterProposer(), 4, True):
            raise ValueError("of the drafter")
    assert [e["annotation"] for e in read_index(tmp_path)] == ["capture_4_PIECEWISE"]
