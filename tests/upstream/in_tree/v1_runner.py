"""A GPUModelRunner of V1 that captures marked work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stand_ins import DEVICE, piecewise_work, warm_up_work
from vllm.config import CUDAGraphMode
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.worker.gpu_model_runner import GPUModelRunner


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
        piecewise_work(2 if cudagraph_runtime_mode == CUDAGraphMode.PIECEWISE else 1)

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
