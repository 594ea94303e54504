"""Where releases differ, found by what is there and not by version numbers.

Names that moved, signatures that changed and what a release lacks. Tests and stand-ins
ask here; a new release that differs needs a line here, or none.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import ProfilerConfig
from vllm.v1.worker.encoder_cudagraph import EncoderCudaGraphManager
from vllm.v1.worker.gpu import cudagraph_utils, model_runner

V2 = "vllm.v1.worker.gpu"


def needs(there: bool, what: str) -> pytest.MarkDecorator:
    """A test of ``what``: not collected, and listed as left out, unless ``there``."""
    return pytest.mark.needs(there, what)


def _find(name: str) -> Any:
    """A module of the release, or None."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Not one that it imports.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return None


def _parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


# What the attention metadata of one batch is kept in.
AttentionState: Any = getattr(cudagraph_utils, "AttentionState", None) or getattr(
    cudagraph_utils, "CapturedAttentionState", None
)
# Whether capturing returns the target's attention states, for a speculator's prefill.
_RETURNS_STATES = hasattr(cudagraph_utils, "AttentionStatePair") or hasattr(
    cudagraph_utils, "CapturedAttentionState"
)
# Whether a factory of forward functions is told what its function is for.
_TELLS_WARM_UP = hasattr(cudagraph_utils, "CreateForwardFn")

_DESCRIPTOR = {field.name for field in fields(cudagraph_utils.BatchExecutionDescriptor)}

V2_LORA_GRAPHS = needs("num_active_loras" in _DESCRIPTOR, "V2 graphs for each LoRA")
BREAKABLE_GRAPHS = needs(
    hasattr(cudagraph_utils, "BreakableCUDAGraphWrapper"), "breakable V2 graphs"
)
encoder_runner = _find(f"{V2}.mm.encoder_runner")
V2_ENCODER_GRAPHS = needs(
    hasattr(getattr(encoder_runner, "EncoderRunner", None), "has_cudagraph"),
    "encoder graphs of the V2 runner",
)
V2_MEMORY_PROFILE = needs(
    hasattr(cudagraph_utils, "profile_cudagraph_memory"),
    "throw-away captures of the V2 runner",
)
_mm_encoder = _find("vllm.v1.worker.mm_encoder_model_runner")
EncoderOnlyRunner: Any = getattr(_mm_encoder, "MMEncoderModelRunner", None)
ENCODER_ONLY_GRAPHS = needs(
    # The runner is older than its graphs.
    EncoderOnlyRunner is not None
    and "encoder_runner"
    in inspect.unwrap(EncoderOnlyRunner.capture_model).__code__.co_names,
    "graphs of encoder-only instances",
)
_ENCODER_GRAPH = _parameters(EncoderCudaGraphManager._capture_budget_graph)
ENCODER_PATHS = needs("path" in _ENCODER_GRAPH, "encoder graphs of several paths")
ENCODER_AXES = needs("axis_keys" in _ENCODER_GRAPH, "encoder graphs of several axes")
STEP_ANNOTATION = needs(
    hasattr(ProfilerConfig, "detailed_trace_annotation"), "the detailed annotation"
)


def forward_factory(create: Callable[[Any, bool], Any]) -> Callable[..., Any]:
    """``create(descriptor, warmup)`` as the release's CudaGraphManager wants it.

    Where capture does not say so, a descriptor's first function is its warm-up.
    """
    warmed_up: set[Any] = set()

    def create_forward_fn(desc: Any, warmup: bool | None = None) -> Any:
        assert (warmup is not None) is _TELLS_WARM_UP
        if warmup is None:
            warmup = desc not in warmed_up
            warmed_up.add(desc)
        forward = create(desc, warmup)
        return (forward, AttentionState(None, {})) if _RETURNS_STATES else forward

    return create_forward_fn


@dataclass(frozen=True)
class Drafting:
    """One of a speculator's steps: its graphs' manager and their mode words.

    ``piecewise`` is None where upstream captures FULL graphs alone.
    """

    manager: type
    piecewise: str | None
    full: str
    takes_states: bool = False
    query_len: int = 1

    def capture(self, manager: Any, forward: Callable[..., None], states: Any) -> None:
        """Call the manager's own capture; ``states`` are what the target's returned."""
        assert (states is not None) is _RETURNS_STATES
        manager.capture(forward, *([states] if self.takes_states else [None] * 5))


# The module with the managers of a speculator's steps, wherever it moved to.
drafting_module: Any = (
    _find(f"{V2}.spec_decode.target_dependent_ar.cudagraph_utils")
    or _find(f"{V2}.spec_decode.autoregressive.cudagraph_utils")
    or _find(f"{V2}.spec_decode.eagle.cudagraph")
)


def _drafting() -> tuple[Drafting, ...]:
    module = drafting_module
    if hasattr(module, "PrefillEagleCudaGraphManager"):
        return (
            Drafting(
                module.PrefillEagleCudaGraphManager,
                "SPEC_PREFILL_PIECEWISE",
                "SPEC_PREFILL_FULL",
                takes_states=True,
            ),
            Drafting(module.DecodeEagleCudaGraphManager, None, "SPEC_DECODE_FULL"),
        )
    if hasattr(module, "PrefillSpeculatorCudaGraphManager"):
        return (
            Drafting(
                module.PrefillSpeculatorCudaGraphManager,
                "SPEC_PREFILL_PIECEWISE",
                "SPEC_PREFILL_FULL",
                takes_states=True,
            ),
            Drafting(module.DecodeSpeculatorCudaGraphManager, None, "SPEC_DECODE_FULL"),
        )
    # One class serves both: they are told apart by the tokens of a request.
    manager = module.SpeculatorCudaGraphManager
    return (
        Drafting(manager, "SPEC_PREFILL_PIECEWISE", "SPEC_PREFILL_FULL", query_len=2),
        Drafting(manager, None, "SPEC_DECODE_FULL"),
    )


DRAFTING = _drafting()
_dflash = _find(f"{V2}.spec_decode.dflash.cudagraph")
# The manager of parallel drafting, whose own capture a test does not call.
DFLASH: type | None = getattr(_dflash, "DFlashCudaGraphManager", None)


class EncoderModel:
    """A model's encoder, as far as any release's graph manager knows it.

    ``paths`` gives each path's smallest token budget, None for that of all; ``axes``
    are the keys by which a budget has several graphs.
    """

    def __init__(
        self,
        work: Callable[[bool], None],
        paths: dict[str, int | None],
        axes: tuple[tuple[tuple[str, ...], ...], ...] = (),
    ) -> None:
        self.work = work
        self.paths = paths
        self.axes = axes
        self.is_warm = False

    def get_encoder_cudagraph_config(self) -> SimpleNamespace:
        """The members that any release reads."""
        return SimpleNamespace(
            max_frames_per_video=1,
            input_key_by_modality={"image": "pixels"},
            enable_dual_path_graph=len(self.paths) > 1,
            global_token_per_image=self.paths.get("global"),
            local_token_per_patch=self.paths.get("local"),
            paths={
                path: SimpleNamespace(
                    min_token_budget=smallest, allow_zero_tokens=path == "local"
                )
                for path, smallest in self.paths.items()
            },
            capture_axes=self.axes,
        )

    def prepare_encoder_cudagraph_capture_inputs(
        self, budget: int, *_: object
    ) -> SimpleNamespace:
        """Inputs of a capture, whose first forward is its warm-up."""
        self.is_warm = False
        pixels = {"pixels": torch.ones(budget)}
        return SimpleNamespace(values=pixels, mm_kwargs=pixels, buffers={})

    def encoder_cudagraph_forward(
        self, values: dict[str, Any], *_: object, path: str = "default"
    ) -> Any:
        """The encoder's work: first a warm-up, then what is captured."""
        assert path in self.paths
        self.work(not self.is_warm)
        self.is_warm = True
        return values["pixels"] * 2


def capture_encoder(manager: Any) -> list[int]:
    """Capture an encoder's graphs outside of a runner; the token budgets captured."""
    if "graph_pool" in _parameters(manager.capture):
        manager.capture("pool")
    else:
        manager.capture()
    graphs = manager.budget_graphs
    return list(graphs.get("default", graphs))


def device_modules() -> list[ModuleType]:
    """The modules that capture, and so have names of the device in them."""
    names = [
        "vllm.compilation.cudagraph_pool",
        "vllm.distributed.parallel_state",
        "vllm.platforms",
        "vllm.utils.torch_utils",
        "vllm.v1.worker.encoder_cudagraph",
        "vllm.v1.worker.gpu_model_runner",
        "vllm.v1.worker.mm_encoder_model_runner",
        cudagraph_utils.__name__,
        model_runner.__name__,
    ]
    return [module for module in map(_find, names) if module is not None]
