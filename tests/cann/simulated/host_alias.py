"""Host tensors over the memory of npu tensors, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map


def alias(value: Any) -> Any:
    """A CPU tensor over the bytes of an npu tensor; anything else as it is.

    It has the same shape, strides and dtype, and like a device pointer keeps nothing
    alive.
    """
    if not isinstance(value, torch.Tensor) or value.device.type != "npu":
        return value
    storage = value.untyped_storage()
    if storage.nbytes() == 0:
        shape, strides = value.shape, value.stride()
        return torch.empty_strided(shape, strides, dtype=value.dtype, device="cpu")
    block = (ctypes.c_byte * storage.nbytes()).from_address(storage.data_ptr())
    memory = torch.frombuffer(block, dtype=torch.uint8).untyped_storage()
    where = (value.storage_offset(), value.shape, value.stride())
    seen = torch.empty(0, dtype=value.dtype, device="cpu").set_(memory, *where)
    return seen.conj() if value.is_conj() else seen


def aliases(tree: Any) -> Any:
    """``tree`` with aliases in it, devices turned to the CPU, lists copied."""
    return tree_map(_on_host, tree)


def on_device(tree: Any, device: torch.device) -> Any:
    """``tree`` with an uninitialised npu tensor in place of each CPU or meta tensor."""

    def make(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device.type == "npu":
            return value
        shape, strides = value.shape, value.stride()
        return torch.empty_strided(shape, strides, dtype=value.dtype, device=device)

    return tree_map(make, tree)


def on_meta(tree: Any) -> Any:
    """``tree`` with meta tensors of the same shape, strides and dtype."""

    def make(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("meta")
        if not isinstance(value, torch.Tensor):
            return value
        shape, strides = value.shape, value.stride()
        return torch.empty_strided(shape, strides, dtype=value.dtype, device="meta")

    return tree_map(make, tree)


def of_now(tree: Any) -> Any:
    """``tree`` with a copy of each host tensor, which its owner may change later."""

    def copy(value: Any) -> Any:
        is_host = isinstance(value, torch.Tensor) and value.device.type == "cpu"
        return value.clone() if is_host else value

    return tree_map(copy, tree)


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def memory(tree: Any) -> list[tuple[int, int]]:
    """[first, end) addresses of the storages of the npu tensors in ``tree``."""
    found = []
    for tensor in tensors(tree):
        storage = tensor.untyped_storage()
        if tensor.device.type == "npu" and storage.nbytes():
            found.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
    return found


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "npu" else value
    return alias(value)
