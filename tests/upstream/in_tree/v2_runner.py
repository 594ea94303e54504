"""A runner of V2 that captures marked work, with the release's real managers."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import upstream_api
from stand_ins import DEVICE, capture_work, forward_fns, piecewise_work
from upstream_api import DFLASH, DRAFTING, AttentionState
from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu import cudagraph_utils, model_runner
from vllm.v1.worker.gpu.cudagraph_utils import (
    CudaGraphManager,
    ModelCudaGraphManager,
)
from vllm.v1.worker.gpu.model_runner import GPUModelRunner


def manager_of(
    config: Any,
    kind: type = CudaGraphManager,
    mode: CUDAGraphMode | None = None,
    query_len: int | None = None,
    **more: Any,
) -> Any:
    """A manager of the mode that ``config`` gives, or another.

    ``query_len`` is the number of a request's tokens in a decode step.
    """
    if mode is None:
        mode = config.compilation_config.cudagraph_mode
    if query_len is None:
        query_len = config.num_speculative_tokens + 1
    return kind(config, DEVICE, mode, query_len, **more)


class Speculator:
    """Captures as the release's speculators do, with the real managers."""

    def __init__(self, config: Any) -> None:
        full = CUDAGraphMode.FULL_DECODE_ONLY
        for number, step in enumerate(DRAFTING):
            mode = full if step.piecewise is None else None
            manager = manager_of(config, step.manager, mode, step.query_len)
            setattr(self, f"manager_{number}", manager)
        self.dflash = manager_of(config, DFLASH, full) if DFLASH is not None else None
        self.captured: list[Any] = []

    def capture(self, attn_states: Any = None) -> None:
        for number, step in enumerate(DRAFTING):
            step.capture(getattr(self, f"manager_{number}"), self.forward, attn_states)
        if self.dflash is not None:
            CudaGraphManager.capture(self.dflash, forward_fns(self.captured))

    def forward(self, *arguments: Any, **_: object) -> None:
        self.captured.append(arguments)
        if arguments[-1] == CUDAGraphMode.PIECEWISE:
            piecewise_work()
        else:
            capture_work()


def encoder_runner_of(manager: Any) -> SimpleNamespace:
    """A model state whose encoder's graphs are captured, if there is a manager."""
    if manager is None:
        return SimpleNamespace(supports_mm_inputs=False)
    runner = object.__new__(upstream_api.encoder_runner.EncoderRunner)
    runner.cudagraph_manager = manager
    runner.device = DEVICE
    return SimpleNamespace(supports_mm_inputs=True, encoder_runner=runner)


def runner_of(
    config: Any,
    monkeypatch: pytest.MonkeyPatch,
    speculator: Speculator | None = None,
    encoder: Any = None,
) -> SimpleNamespace:
    """What the real capture_model and profile_cudagraph_memory ask of ``self``."""
    captures: list[CUDAGraphMode] = []
    state = AttentionState(None, {})

    def set_forward_context(
        *_: Any, cudagraph_runtime_mode: CUDAGraphMode, **__: Any
    ) -> nullcontext[None]:
        captures.append(cudagraph_runtime_mode)
        return nullcontext()

    for module in (cudagraph_utils, upstream_api.drafting_module):
        monkeypatch.setattr(module, "prepare_inputs_to_capture", lambda *a, **k: state)
    monkeypatch.setattr(cudagraph_utils, "set_forward_context", set_forward_context)
    for module, name, stand_in in (
        (model_runner, "create_lora_capture_hook", lambda *_: None),
        (cudagraph_utils, "_init_minimal_kv_cache_for_profiling", lambda _: None),
        (cudagraph_utils, "_teardown_profiling_state", lambda _: None),
        (cudagraph_utils, "set_current_vllm_config", lambda _: nullcontext()),
    ):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, stand_in)

    def model(input_ids: torch.Tensor, **_: object) -> torch.Tensor:
        if captures[-1] == CUDAGraphMode.PIECEWISE:
            piecewise_work()
        else:
            capture_work()
        return torch.ones(len(input_ids), 4)

    model_state = encoder_runner_of(encoder)
    model_state.prepare_dummy_inputs = lambda *_: {}
    model_state.capture_inner_cudagraphs = lambda *_: None
    runner = SimpleNamespace(
        captures=captures,
        vllm_config=config,
        compilation_config=config.compilation_config,
        cudagraph_manager=manager_of(config, ModelCudaGraphManager),
        model=model,
        model_state=model_state,
        input_buffers=SimpleNamespace(
            input_ids=torch.zeros(8),
            positions=torch.zeros(8),
            is_padding=torch.zeros(8, dtype=torch.bool),
        ),
        intermediate_tensors=None,
        block_tables=None,
        attn_groups=None,
        kv_cache_config=None,
        kv_connector=SimpleNamespace(reset_capture_state=lambda: None),
        lora_config=None,
        is_encoder_only=False,
        pcp_manager=None,
        adaptive_verification=None,
        eplb=SimpleNamespace(suppress=nullcontext),
        use_aux_hidden_state_outputs=False,
        speculator=speculator,
        _draft_workspace_lane=0,
        maybe_setup_dummy_loras=lambda lora: nullcontext(),
        needs_cudagraph_capture=lambda: True,
    )
    runner.capture_model = lambda **options: GPUModelRunner.capture_model(
        runner, **options
    )
    return runner
