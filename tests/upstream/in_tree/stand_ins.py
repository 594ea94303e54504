"""What stands in for a GPU and for the parts of an engine that capture is not about.

The graphs run eagerly. Entering and leaving one leaves marks in the trace, as a begin
and an end of stream capture would.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from upstream_api import forward_factory
from vllm.compilation.counter import compilation_counter
from vllm.config import (
    CompilationConfig,
    CompilationMode,
    CUDAGraphMode,
    ProfilerConfig,
)

BEGIN = "mark::begin_capture"
END = "mark::end_capture"
DEVICE = torch.device("cpu")


class EagerGraph:
    """A graph that holds nothing."""


class EagerCapture:
    """Stands in for ``torch.cuda.graph``: the body runs at once."""

    def __init__(
        self, graph: EagerGraph, pool: object = None, stream: object = None
    ) -> None:
        assert isinstance(graph, EagerGraph)
        self.pool = pool

    def __enter__(self) -> None:
        mark(BEGIN)

    def __exit__(self, *exception: object) -> None:
        mark(END)


def mark(name: str) -> None:
    """Leave a mark of zero length in the trace, if there is one."""
    with torch.profiler.record_function(name):
        pass


def warm_up_work() -> None:
    """Operators that a trace of a capture must not hold."""
    torch.sin(torch.ones(3))


def capture_work() -> None:
    """Operators that it must hold."""
    torch.cos(torch.ones(3))


def piecewise_work(pieces: int = 2) -> None:
    """What the wrappers of a piecewise compiled model do."""
    for _ in range(pieces):
        with EagerCapture(EagerGraph()):
            capture_work()
        compilation_counter.num_cudagraph_captured += 1


def make_config(
    folder: object = None,
    sizes: tuple[int, ...] = (1, 2, 4),
    mode: CUDAGraphMode = CUDAGraphMode.FULL_AND_PIECEWISE,
    data_parallel_index: int = 0,
    lora: SimpleNamespace | None = None,
    max_num_seqs: int = 2,
    specialize_lora: bool = True,
    num_speculative_tokens: int = 0,
    **profiler: Any,
) -> SimpleNamespace:
    """The parts of a VllmConfig that capturing reads; ``folder`` None: no profiler."""
    if folder is not None:
        profiler = {
            "profiler": "torch",
            "torch_profiler_dir": str(folder),
            "capture_torch_profiler": True,
            **profiler,
        }
    compilation = CompilationConfig(
        cudagraph_capture_sizes=list(sizes),
        max_cudagraph_capture_size=max(sizes),
        cudagraph_mode=mode,
        cudagraph_specialize_lora=specialize_lora,
        splitting_ops=list(CompilationConfig._attention_ops),
        mode=CompilationMode.VLLM_COMPILE,
    )
    speculative = None
    if num_speculative_tokens:
        speculative = SimpleNamespace(
            num_speculative_tokens=num_speculative_tokens,
            uses_dynamic_speculative_decoding=lambda: False,
        )
    return SimpleNamespace(
        profiler_config=ProfilerConfig(**profiler),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs),
        parallel_config=SimpleNamespace(
            data_parallel_index=data_parallel_index,
            data_parallel_size=1,
            tensor_parallel_size=1,
            cp_kv_cache_interleave_size=1,
            use_ubatching=False,
            num_ubatches=1,
        ),
        model_config=SimpleNamespace(multimodal_config=None),
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
        use_cumem_cudagraph_pool=False,
        lora_config=lora,
        speculative_config=speculative,
        num_speculative_tokens=num_speculative_tokens,
    )


def forward_fns(
    seen: list[Any] | None = None, fail_at: int | None = None
) -> Callable[..., Any]:
    """A ``create_forward_fn`` for CudaGraphManager.capture.

    ``seen`` collects the descriptors captured; the capture for ``fail_at`` tokens
    raises ValueError.
    """

    def create(desc: Any, warmup: bool) -> Callable[[CUDAGraphMode], None]:
        torch.tan(torch.ones(3))  # Inputs are prepared outside of the graph.

        def forward(mode: CUDAGraphMode) -> None:
            if warmup and mode == CUDAGraphMode.NONE:
                warm_up_work()
                return
            if seen is not None:
                seen.append(desc)
            if desc.num_tokens == fail_at:
                raise ValueError("no memory is left")
            if mode == CUDAGraphMode.PIECEWISE:
                piecewise_work()
            else:
                capture_work()

        return forward

    return forward_factory(create)
