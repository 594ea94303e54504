"""The V1 runner: its real capture functions, and the encoders it captures."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from reader import folder_of, merged, read_index, read_traces
from stand_ins import (
    BEGIN,
    DEVICE,
    END,
    capture_work,
    make_config,
    piecewise_work,
    warm_up_work,
)
from vllm.compilation.counter import compilation_counter
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor
from vllm.profiler.capture_traces import (
    trace_capture_session,
    trace_drafter_capture,
    trace_v1_capture,
)
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.spec_decode.eagle import EagleProposer
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.encoder_cudagraph import EncoderCudaGraphManager
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from conftest import Log

FULL, PIECEWISE = CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE


class Encoder:
    """A model's encoder, as far as its graph manager knows it."""

    def __init__(self, dual_path: bool) -> None:
        self.dual_path = dual_path

    def get_encoder_cudagraph_config(self) -> SimpleNamespace:
        return SimpleNamespace(
            enable_dual_path_graph=self.dual_path,
            global_token_per_image=16,
            local_token_per_patch=8,
            max_frames_per_video=1,
        )

    def prepare_encoder_cudagraph_capture_inputs(
        self, budget: int, *_: object
    ) -> SimpleNamespace:
        self.is_warm = False
        return SimpleNamespace(values={"pixels": torch.ones(budget)})

    def encoder_cudagraph_forward(
        self, values: dict[str, torch.Tensor], path: str
    ) -> torch.Tensor:
        assert path in (("global", "local") if self.dual_path else ("default",))
        (capture_work if self.is_warm else warm_up_work)()
        self.is_warm = True
        return values["pixels"] * 2


def encoder_manager(config: Any, dual_path: bool = False) -> EncoderCudaGraphManager:
    compilation = config.compilation_config
    compilation.encoder_cudagraph_token_budgets = [16, 32]
    compilation.encoder_cudagraph_max_vision_items_per_batch = 4
    compilation.encoder_cudagraph_max_frames_per_batch = None
    multimodal = MagicMock(**{"get_limit_per_prompt.return_value": 0})
    config.model_config = SimpleNamespace(multimodal_config=multimodal)
    return EncoderCudaGraphManager(config, DEVICE, torch.float32, Encoder(dual_path))


def runner_of(
    config: Any, encoder: object = None, fail_at: int | None = None, warmups: int = 2
) -> Any:
    """A GPUModelRunner with what capturing needs, and a marked ``_dummy_run``."""
    runner = object.__new__(GPUModelRunner)
    runner.runs = []

    def dummy_run(
        num_tokens: int,
        cudagraph_runtime_mode: CUDAGraphMode,
        is_graph_capturing: bool = False,
        num_active_loras: int = 0,
        **_: object,
    ) -> None:
        if not is_graph_capturing:
            assert cudagraph_runtime_mode == CUDAGraphMode.NONE
            warm_up_work()
            return
        runner.runs.append((num_tokens, cudagraph_runtime_mode.name, num_active_loras))
        if num_tokens == fail_at:
            raise ValueError("no memory is left")
        piecewise_work(2 if cudagraph_runtime_mode == PIECEWISE else 1)

    config.compilation_config.cudagraph_num_of_warmups = warmups
    runner.vllm_config = config
    runner.compilation_config = config.compilation_config
    runner.parallel_config = config.parallel_config
    runner.lora_config = None
    runner.load_config = SimpleNamespace(use_tqdm_on_load=False)
    runner.device = DEVICE
    runner.max_model_len = runner.max_num_tokens = 64
    runner._dummy_run = dummy_run
    runner.cudagraph_dispatcher = CudagraphDispatcher(config)
    runner.cudagraph_dispatcher.initialize_cudagraph_keys(
        config.compilation_config.cudagraph_mode, config.num_speculative_tokens + 1
    )
    runner.encoder_cudagraph_manager = encoder
    runner._create_encoder_cudagraph_manager = lambda: encoder
    runner._init_minimal_kv_cache_for_profiling = lambda: None
    runner._cleanup_profiling_kv_cache = lambda: None
    return runner


def test_one_trace_a_graph(tmp_path: Path, log: Log) -> None:
    runner = runner_of(make_config(tmp_path, max_num_seqs=4))
    runner.capture_model()
    keys = [(size, mode) for mode in ("PIECEWISE", "FULL") for size in (4, 2, 1)]
    assert runner.runs == [(*key, 0) for key in keys]
    index = read_index(tmp_path)
    traces = read_traces(tmp_path)
    assert [(e["batch_size"], e["mode"]) for e in index] == keys
    assert set(traces) == {e["file"] for e in index}
    for entry in index:
        size, mode = entry["batch_size"], entry["mode"]
        trace = traces[entry["file"]]
        assert trace.name == f"dp0_pp0_tp0.capture_{size}_{mode}.json.gz"
        assert trace.annotations == [(size, mode)]
        assert (entry["subsystem"], entry["manager"], entry["runner"]) == (
            "target",
            "GPUModelRunner",
            "v1",
        )
        # Decode for as many sequences as tokens; mixed batches for any number.
        uniform = (size, 1) if mode == "FULL" else (None, None)
        assert (entry["num_reqs"], entry["uniform_token_count"]) == uniform
        begin, end = trace.span(f"capture_{size}_{mode}")
        for name in (BEGIN, END, "aten::cos"):
            first, last = trace.span(name)
            assert begin <= first <= last <= end
        assert "aten::sin" not in trace.names
        # What keeps the annotation from being taken for another's.
        frames = [e for e in trace.events if e.get("name", "").endswith(": dummy_run")]
        assert len(frames) == 1
    folder = folder_of(tmp_path)
    assert log.of("ERROR") == []
    assert log.of("INFO")[-1] == (
        f"Wrote 6 capture traces to {folder} (graphs captured: 3 PIECEWISE, 3 FULL)"
    )


def test_decode_of_speculated_tokens(tmp_path: Path) -> None:
    config = make_config(tmp_path, sizes=(3, 6), num_speculative_tokens=2)
    runner_of(config).capture_model()
    assert [
        (e["batch_size"], e["mode"], e["num_reqs"], e["uniform_token_count"])
        for e in read_index(tmp_path)
    ] == [
        (6, "PIECEWISE", None, None),
        (3, "PIECEWISE", None, None),
        (6, "FULL", 2, 3),
        (3, "FULL", 1, 3),
    ]


def test_full_graphs_of_mixed_batches(tmp_path: Path) -> None:
    runner_of(make_config(tmp_path, mode=FULL)).capture_model()
    assert [
        (e["batch_size"], e["mode"], e["num_reqs"], e["uniform_token_count"])
        for e in read_index(tmp_path)
    ] == [(4, "FULL", 2, None), (2, "FULL", 2, None), (1, "FULL", 1, None)]


@pytest.mark.parametrize(
    ("specialize", "words"),
    [(True, {3: "_LORA3", 0: ""}), (False, {3: ""})],
    ids=["with and without", "with alone"],
)
def test_graphs_that_differ_by_loras(
    tmp_path: Path, specialize: bool, words: dict[int, str]
) -> None:
    lora = SimpleNamespace(max_loras=2, specialize_active_lora=False)
    config = make_config(tmp_path, sizes=(2,), lora=lora, specialize_lora=specialize)
    runner = runner_of(config)
    runner.capture_model()
    modes = ("PIECEWISE", "FULL")
    assert runner.runs == [(2, mode, loras) for mode in modes for loras in words]
    assert [(e["mode"], e["num_active_loras"]) for e in read_index(tmp_path)] == [
        (f"{mode}{word}", loras) for mode in modes for loras, word in words.items()
    ]
    assert set(merged(tmp_path)) == {"2_PIECEWISE", "2_FULL"}


def test_throw_away_captures_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        gpu_model_runner, "set_current_vllm_config", lambda config: nullcontext()
    )
    config = make_config(tmp_path)
    encoder = encoder_manager(config)
    runner = runner_of(config, encoder)
    runner.profile_cudagraph_memory()
    # Two shapes of each mode, and every encoder graph.
    assert [run[:2] for run in runner.runs] == [
        (4, "PIECEWISE"),
        (2, "PIECEWISE"),
        (2, "FULL"),
        (1, "FULL"),
    ]
    assert list(tmp_path.iterdir()) == []


def test_throw_away_captures_before_the_real_ones(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        gpu_model_runner, "set_current_vllm_config", lambda config: nullcontext()
    )
    config = make_config(tmp_path)
    runner = runner_of(config)
    runner.profile_cudagraph_memory()
    runner.cudagraph_dispatcher.initialize_cudagraph_keys(
        config.compilation_config.cudagraph_mode
    )
    runner.capture_model()
    assert len(read_index(tmp_path)) == len(read_traces(tmp_path)) == 5
    assert log.of("ERROR") == []


def test_captures_outside_of_a_session(tmp_path: Path) -> None:
    runner = runner_of(make_config(tmp_path))
    runner._capture_cudagraphs([BatchDescriptor(4), BatchDescriptor(2)], PIECEWISE)
    assert len(runner.runs) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_option_off(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise AssertionError("a profiler was made")

    monkeypatch.setattr(torch.profiler, "profile", explode)
    config = make_config(tmp_path, capture_torch_profiler=False)
    runner = runner_of(config, encoder_manager(config))
    runner.capture_model()
    assert len(runner.runs) == 5
    assert list(tmp_path.iterdir()) == []
    assert log.lines == []


def test_an_exception_in_a_capture_goes_through(tmp_path: Path) -> None:
    runner = runner_of(make_config(tmp_path), fail_at=2)
    with pytest.raises(ValueError, match="no memory is left") as caught:
        runner.capture_model()
    assert caught.value.__context__ is None
    assert not torch.autograd._profiler_enabled()
    assert [e["annotation"] for e in read_index(tmp_path)] == ["capture_4_PIECEWISE"]


def test_a_plugin_that_overrides_capture_model(tmp_path: Path) -> None:
    """As long as it ends in upstream's; the worker has no part in it."""

    class PluginRunner(GPUModelRunner):
        def capture_model(self) -> int:
            return super().capture_model()

    runner = runner_of(make_config(tmp_path))
    runner.__class__ = PluginRunner
    runner.capture_model()
    assert len(read_traces(tmp_path)) == 5


def test_encoder_graphs_by_budget(tmp_path: Path, log: Log) -> None:
    config = make_config(tmp_path, sizes=(2,))
    runner_of(config, encoder_manager(config)).capture_model()
    index = [e for e in read_index(tmp_path) if e["subsystem"] == "encoder"]
    assert [
        (e["batch_size"], e["mode"], e["num_reqs"], e["manager"]) for e in index
    ] == [(size, "ENC_DEFAULT_FULL", 4, "EncoderCudaGraphManager") for size in (32, 16)]
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


def test_encoder_graphs_by_path(tmp_path: Path) -> None:
    config = make_config(tmp_path, sizes=(2,))
    runner_of(config, encoder_manager(config, dual_path=True)).capture_model()
    keys = [
        (e["batch_size"], e["mode"])
        for e in read_index(tmp_path)
        if e["subsystem"] == "encoder"
    ]
    assert keys == [
        *((size, "ENC_GLOBAL_FULL") for size in (32, 16)),
        *((size, "ENC_LOCAL_FULL") for size in (32, 16, 8)),
    ]


def test_encoder_graphs_outside_of_a_session(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    manager = encoder_manager(config)
    manager.capture("pool")
    assert set(manager.budget_graphs["default"]) == {16, 32}
    assert list(tmp_path.iterdir()) == []


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
    runner.maybe_randomize_inputs = lambda *_: nullcontext()
    runner._init_model_kwargs = dict
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
