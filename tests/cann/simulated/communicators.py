"""Communicators between processes of this machine, and what travels between them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

HOST = "127.0.0.1"
# HCCL's own variables, whose defaults are minutes.
_SECONDS = 10.0
CONNECT, EXECUTE = "HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT"

# By the numbers of HcclDataType and HcclReduceOp.
TYPES = {
    0: torch.int8,
    1: torch.int16,
    2: torch.int32,
    3: torch.float16,
    4: torch.float32,
    5: torch.int64,
    6: torch.uint64,
    7: torch.uint8,
    8: torch.uint16,
    9: torch.uint32,
    10: torch.float64,
    11: torch.bfloat16,
    15: torch.float8_e4m3fn,
    16: torch.float8_e5m2,
}
REDUCTIONS: tuple[tuple[str, Callable[..., torch.Tensor]], ...] = (
    ("sum", torch.add),
    ("product", torch.mul),
    ("maximum", torch.maximum),
    ("minimum", torch.minimum),
)
NAMES = (
    "HcclAllReduce",
    "HcclReduce",
    "HcclAllGather",
    "HcclReduceScatter",
    "HcclBroadcast",
    "HcclScatter",
    "HcclAlltoAll",
    "HcclAlltoAllV",
    "HcclSend",
)


class CollectiveError(RuntimeError):
    """A collective that failed: a rank did not come, or asked for something else."""


class Unsupported(Exception):
    pass


class Call(NamedTuple):
    """What all ranks of one collective have to agree on; travels ahead of the data."""

    name: int
    count: int
    type: int
    op: int = -1
    root: int = -1

    def __str__(self) -> str:
        text = f"{NAMES[self.name]} of {self.count} {_dtype(self.type)}"
        if self.op >= 0:
            text += f", {REDUCTIONS[self.op][0]}"
        return text + (f", root {self.root}" if self.root >= 0 else "")


@dataclass
class Communicator:
    """One rank's end of a communicator."""

    name: str
    rank: int
    size: int
    store: dist.Store
    gloo: dist.ProcessGroupGloo
    started: int = 0

    def gather(self, part: torch.Tensor) -> list[torch.Tensor]:
        """All ranks' parts, each of the shape of ``part``."""
        parts = [torch.empty_like(part) for _ in range(self.size)]
        self.gather_into(parts, part)
        return parts

    def gather_into(self, parts: Sequence[torch.Tensor], part: torch.Tensor) -> None:
        if part.numel():
            to = [bytes_of(to) for to in parts]
            self.gloo.allgather([to], [bytes_of(part)]).wait()

    def agree(self, call: Call) -> None:
        """Raises CollectiveError where another rank asks for another call."""
        for rank, words in enumerate(self.gather(torch.tensor(call))):
            other = Call(*words.tolist())
            if other != call:
                raise CollectiveError(
                    f"ranks differ: {call} on rank {self.rank}, {other} on rank {rank}"
                )

    def agree_with(self, rank: int, call: Call, first: bool) -> None:
        """Compare a message with the other rank's idea of it, on both ends."""
        words = torch.empty(len(call), dtype=torch.int64)
        steps = [
            lambda: self.gloo.send([bytes_of(torch.tensor(call))], rank, 0).wait(),
            lambda: self.gloo.recv([bytes_of(words)], rank, 0).wait(),
        ]
        for step in steps if first else reversed(steps):
            step()
        if (other := Call(*words.tolist())) != call:
            raise CollectiveError(
                f"ranks differ: {call} on rank {self.rank}, {other} on rank {rank}"
            )

    def note(self, what: str) -> None:
        """Tell the other ranks where this one is, for their errors."""
        self.started += 1
        self.store.set(f"at {self.rank}", f"{self.started} {what}")

    def positions(self) -> str:
        try:
            lines = []
            for rank in range(self.size):
                key = f"at {rank}"
                known = self.store.check([key])
                number, _, what = (
                    self.store.get(key).decode() if known else "0 nothing"
                ).partition(" ")
                late = " (not there)" if int(number) < self.started else ""
                lines.append(f"rank {rank} began {number}, last {what}{late}")
            return "\n".join(lines)
        except Exception as error:
            # The store ends with the root's process.
            return f"where the other ranks are is unknown: {error}"


def time_limit(variable: str) -> timedelta:
    return timedelta(seconds=float(os.environ.get(variable) or _SECONDS))


def gloo_group(store: dist.Store, rank: int, size: int) -> dist.ProcessGroupGloo:
    options = dist.ProcessGroupGloo._Options()
    # The name of the machine need not be an address of it.
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=HOST)]
    options._timeout = time_limit(EXECUTE)
    options._threads = 1
    return dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, options)


def missing_ranks(store: dist.Store | None, size: int) -> str:
    if store is None:
        return "the root is gone"
    try:
        there = [store.check([f"come {rank}"]) for rank in range(size)]
    except Exception as error:
        return f"the root is gone: {error}"
    missing = [rank for rank, came in enumerate(there) if not came]
    return f"ranks {missing} did not come" if missing else "all ranks came"


def _dtype(type: int) -> str:
    return str(TYPES[type]).removeprefix("torch.")


def memory_at(address: int, count: int, type: int) -> torch.Tensor:
    """A tensor over device memory, without a copy; it keeps nothing alive."""
    dtype = TYPES.get(type)
    if dtype is None:
        raise Unsupported(f"HcclDataType {type} is not simulated")
    if count == 0:
        return torch.empty(0, dtype=dtype)
    block = (ctypes.c_byte * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(block, dtype=dtype)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


def reduced(parts: Sequence[torch.Tensor], op: int) -> torch.Tensor:
    dtype = parts[0].dtype
    half = dtype in (torch.float16, torch.bfloat16)
    total = parts[0].float() if half else parts[0].clone()
    for part in parts[1:]:
        total = REDUCTIONS[op][1](total, part.to(total.dtype))
    return total.to(dtype)


def broadcast_from(group: Communicator, memory: torch.Tensor, root: int) -> None:
    if memory.numel():
        options = dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        group.gloo.broadcast([bytes_of(memory)], options).wait()
