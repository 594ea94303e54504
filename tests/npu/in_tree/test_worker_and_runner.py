"""What worker and runner refuse, and what they replace for a while; no model."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import ParallelConfig
from vllm.distributed.parallel_state import graph_capture
from vllm.utils.torch_utils import current_stream
from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend
from vllm.v1.attention.backends.npu_attn import NPUAttentionBackend
from vllm.v1.worker import gpu_model_runner, gpu_worker
from vllm.v1.worker.npu_model_runner import NPUModelRunner, npu_graph_capture
from vllm.v1.worker.npu_worker import NPUWorker


def bare(cls: type, **attributes: Any) -> Any:
    """One that nothing was set up in but these."""
    made = cls.__new__(cls)
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize("rank", [1, 7])
def test_a_rank_without_a_device(rank: int) -> None:
    worker = bare(NPUWorker, local_rank=rank, parallel_config=ParallelConfig())
    wanted = rf"Rank {rank} has no NPU: 1 visible \(ASCEND_RT_VISIBLE_DEVICES chooses"
    with pytest.raises(ValueError, match=wanted):
        worker.init_device()


def test_kernels_of_gpus_are_not_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class WarmedUpAnyway(Exception):
        pass

    def kernel_warmup(worker: Any) -> None:
        raise WarmedUpAnyway

    def parents(worker: Any) -> Any:
        gpu_worker.kernel_warmup(worker)
        return "times"

    monkeypatch.setattr(gpu_worker, "kernel_warmup", kernel_warmup)
    monkeypatch.setattr(gpu_worker.Worker, "compile_or_warm_up_model", parents)
    assert bare(NPUWorker).compile_or_warm_up_model() == "times"
    assert gpu_worker.kernel_warmup is kernel_warmup


def test_memory_is_not_taken_from_a_pool_for_sleeping() -> None:
    with bare(NPUWorker)._maybe_get_memory_pool_context("weights") as pool:
        assert pool is None


@pytest.mark.parametrize(
    ("backends", "refused"),
    [
        ([NPUAttentionBackend], False),
        ([type("Derived", (NPUAttentionBackend,), {})], False),
        ([NPUAttentionBackend, FlashAttentionBackend], True),
    ],
)
def test_a_layer_whose_backend_npus_do_not_have(
    monkeypatch: pytest.MonkeyPatch, backends: list[type], refused: bool
) -> None:
    groups = [
        [SimpleNamespace(backend=backend, layer_names=[f"layer.{n}", f"other.{n}"])]
        for n, backend in enumerate(backends)
    ]
    given = []

    def parents(runner: Any, *args: Any, **kwargs: Any) -> None:
        given.append((args, kwargs))
        runner.attn_groups = groups

    monkeypatch.setattr(
        gpu_model_runner.GPUModelRunner, "initialize_attn_backend", parents
    )
    wanted = r"Layers layer\.1, other\.1 need the backend FLASH_ATTN, which NPUs do not"
    expected = pytest.raises(ValueError, match=wanted) if refused else nullcontext()
    with expected:
        bare(NPUModelRunner).initialize_attn_backend("config", is_profiling=True)
    assert given == [(("config",), {"is_profiling": True})]


def test_a_capture_has_a_stream_that_waits_for_what_was_started() -> None:
    x = torch.ones(4).npu()
    outside, gate = torch.npu.current_stream(), torch.npu.ExternalEvent()
    # Held up until the gate opens.
    gate.wait(outside)
    x.mul_(3)
    with npu_graph_capture(torch.device("npu:0")) as context:
        assert context.stream != outside
        assert current_stream() == torch.npu.current_stream() == context.stream
        y = x + 1
        assert not context.stream.query()
    assert torch.npu.current_stream() == outside
    gate.record(torch.npu.Stream())
    outside.wait_stream(context.stream)
    assert y.tolist() == [4] * 4


def test_the_runner_captures_with_its_own_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def parents(runner: Any) -> int:
        seen.append((gpu_model_runner.graph_capture, torch.cuda.Stream))
        return 5

    monkeypatch.setattr(gpu_model_runner.GPUModelRunner, "capture_model", parents)
    assert bare(NPUModelRunner).capture_model() == 5
    assert seen == [(npu_graph_capture, torch.npu.Stream)]
    assert gpu_model_runner.graph_capture is graph_capture
    assert torch.cuda.Stream is not torch.npu.Stream


METHODS = (
    "load_model",
    "initialize_kv_cache",
    "profile_run",
    "_dummy_run",
    "execute_model",
    "sample_tokens",
)


@pytest.mark.parametrize("method", METHODS)
def test_names_mean_npu_in_each_method_that_runs_on_it(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    seen = []

    def parents(runner: Any, *args: Any) -> str:
        seen.append((torch.cuda.Stream, args))
        return "output"

    monkeypatch.setattr(gpu_model_runner.GPUModelRunner, method, parents)
    args = () if method == "profile_run" else (1, 2)
    before = torch.cuda.Stream
    returned = getattr(bare(NPUModelRunner), method)(*args)
    assert seen == [(torch.npu.Stream, args)]
    assert torch.cuda.Stream is before is not torch.npu.Stream
    gives = method in ("_dummy_run", "execute_model", "sample_tokens")
    assert returned == ("output" if gives else None)
