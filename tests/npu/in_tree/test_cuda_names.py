"""Names that stand for others in a scope, and are what they were outside of it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.compilation.acl_graph import ACLGraph, acl_graph
from vllm.utils import npu_cuda_names
from vllm.utils.npu_cuda_names import (
    ScopedAttributes,
    cuda_names_mean_npu,
    npu_stream,
    provide_accelerator_memory_functions,
)
from vllm.utils.torch_utils import current_stream, weak_ref_tensor


def attributes(owner: Any) -> dict[str, Any]:
    return dict(vars(owner))


def test_names_of_cuda_mean_npu_inside_alone() -> None:
    before = attributes(torch.cuda)
    with cuda_names_mean_npu():
        changed = {
            name
            for name, value in vars(torch.cuda).items()
            if value is not before[name]
        }
        assert torch.cuda.Stream is torch.npu.Stream
        assert torch.cuda.Event is torch.npu.Event
        assert torch.cuda.CUDAGraph is ACLGraph
        assert torch.cuda.graph is acl_graph
        assert torch.cuda.current_stream() == torch.npu.current_stream()
        assert torch.cuda.default_stream() == torch.npu.default_stream()
        assert torch.cuda.mem_get_info() == torch.npu.mem_get_info()
        assert len(torch.cuda.graph_pool_handle()) == len(torch.npu.graph_pool_handle())
        torch.cuda.synchronize()
        # Whether there is CUDA is asked elsewhere, and there is none.
        assert not torch.cuda.is_available()
    assert attributes(torch.cuda) == before
    assert len(changed) == 10


def test_as_a_decorator_for_each_call() -> None:
    seen = []

    @cuda_names_mean_npu()
    def method(value: int, *, fails: bool = False) -> int:
        seen.append(torch.cuda.Stream)
        if fails:
            raise KeyError(value)
        return value

    before = attributes(torch.cuda)
    assert method(3) == 3
    with pytest.raises(KeyError):
        method(4, fails=True)
    assert attributes(torch.cuda) == before
    assert method(5) == 5
    assert seen == [torch.npu.Stream] * 3


def counted() -> tuple[SimpleNamespace, ScopedAttributes, list[int]]:
    """An owner whose a and b are 1 and 2, and 10 and 20 in a scope."""
    owner = SimpleNamespace(a=1, b=2)
    asked: list[int] = []

    def values() -> list[tuple[Any, str, Any]]:
        asked.append(1)
        return [(owner, "a", 10), (owner, "b", 20)]

    return owner, ScopedAttributes(values), asked


def test_the_first_scope_sets_and_the_last_restores() -> None:
    owner, names, asked = counted()
    with names.scope():
        with names.scope():
            assert (owner.a, owner.b) == (10, 20)
        assert (owner.a, owner.b) == (10, 20)
    assert (owner.a, owner.b) == (1, 2)
    assert asked == [1]
    # What it is by now counts.
    owner.a = 5
    with names.scope():
        assert owner.a == 10
    assert (owner.a, owner.b) == (5, 2)
    assert asked == [1, 1]


def test_an_exception_restores_and_passes() -> None:
    owner, names, _ = counted()
    with names.scope():
        with pytest.raises(KeyError), names.scope():
            raise KeyError
        assert owner.a == 10
    assert (owner.a, owner.b) == (1, 2)


def test_scopes_of_threads_overlap() -> None:
    owner, names, asked = counted()
    inside, go_on = threading.Event(), threading.Event()
    found = []

    def other() -> None:
        with names.scope():
            inside.set()
            go_on.wait(10)
            found.append((owner.a, owner.b))

    thread = threading.Thread(target=other)
    with names.scope():
        thread.start()
        assert inside.wait(10)
    assert owner.a == 10
    go_on.set()
    thread.join()
    assert found == [(10, 20)]
    assert (owner.a, owner.b) == (1, 2)
    assert asked == [1]


def test_a_name_that_is_missing_changes_nothing() -> None:
    owner = SimpleNamespace(a=1)
    names = ScopedAttributes(lambda: [(owner, "a", 10), (owner, "b", 20)])
    for _ in range(2):
        with pytest.raises(AttributeError, match="b"), names.scope():
            pass
    assert vars(owner) == {"a": 1}


def test_a_stream_is_vllm_s_current_one_too() -> None:
    outer, inner = torch.npu.Stream(), torch.npu.Stream()
    before = current_stream()
    with npu_stream(outer):
        assert current_stream() == torch.npu.current_stream() == outer
        with pytest.raises(KeyError), npu_stream(inner):
            assert current_stream() == torch.npu.current_stream() == inner
            raise KeyError
        assert current_stream() == torch.npu.current_stream() == outer
        # As torch.cuda.stream has it: nothing changes.
        with npu_stream(None):
            assert current_stream() == torch.npu.current_stream() == outer
    assert current_stream() is before
    assert torch.npu.current_stream() == torch.npu.default_stream()


NAMES = npu_cuda_names._MEMORY_FUNCTIONS


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch.accelerator, with its memory functions failing as torch_npu's do."""

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Allocator for npu is not a DeviceAllocator.")

    for name in NAMES:
        monkeypatch.setattr(torch.accelerator, name, fails)
    return torch.accelerator


def test_memory_functions_of_the_accelerator(accelerator: Any) -> None:
    provide_accelerator_memory_functions()
    tensor = torch.empty(1 << 20, dtype=torch.uint8, device="npu")
    used = accelerator.memory_allocated()
    assert used == torch.npu.memory_allocated()
    assert accelerator.memory_reserved() == torch.npu.memory_reserved() >= used
    assert accelerator.get_memory_info() == torch.npu.mem_get_info()
    statistics = accelerator.memory_stats()
    assert statistics["allocated_bytes.all.current"] == used
    accelerator.reset_peak_memory_stats()
    assert accelerator.max_memory_allocated() == used
    del tensor
    assert accelerator.memory_allocated() < used == accelerator.max_memory_allocated()
    accelerator.empty_cache()
    assert accelerator.max_memory_reserved() == torch.npu.max_memory_reserved()


def test_memory_functions_that_work_stay(
    accelerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "memory_allocated", lambda: 0)
    before = attributes(accelerator)
    provide_accelerator_memory_functions()
    assert attributes(accelerator) == before


def test_a_weak_reference_shares_memory_and_does_not_keep_it() -> None:
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    tensor = torch.arange(6, device="npu", dtype=torch.float32).view(2, 3)
    weak = weak_ref_tensor(tensor.T)
    assert (weak.data_ptr(), weak.dtype) == (tensor.data_ptr(), tensor.dtype)
    assert (weak.shape, weak.stride()) == (tensor.T.shape, tensor.T.stride())
    tensor.mul_(2)
    assert weak.tolist() == [[0, 6], [2, 8], [4, 10]]
    del tensor
    assert torch.npu.memory_allocated() == before
