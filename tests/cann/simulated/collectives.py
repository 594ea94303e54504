"""HCCL's collectives between processes of this machine: answers hccl_runtime.cpp.

Each is one task of its stream, so a captured one runs at the replays. Bytes travel by
gloo; each rank reduces all ranks' parts itself, in the order of the ranks. float16 and
bfloat16 are summed in float32 and rounded once, which hardware need not do.
"""

# The parameters are those of HCCL's functions.
# ruff: noqa: PLR0917

from __future__ import annotations

import ctypes
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from simulated.machine import Machine
from simulated.tasks import Task

_HANDLER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))
_HOST = "127.0.0.1"
# HCCL's own variables, whose defaults are minutes.
_SECONDS = 10.0
_CONNECT, _EXECUTE = "HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT"

# By the numbers of HcclResult, HcclDataType and HcclReduceOp.
_E_INTERNAL, _E_NOT_SUPPORT, _E_TIMEOUT = 4, 5, 9
_TYPES = {
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
_REDUCTIONS: tuple[tuple[str, Callable[..., torch.Tensor]], ...] = (
    ("sum", torch.add),
    ("product", torch.mul),
    ("maximum", torch.maximum),
    ("minimum", torch.minimum),
)
_NAMES = (
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


class _Unsupported(Exception):
    pass


class Call(NamedTuple):
    """What all ranks of one collective have to agree on; travels ahead of the data."""

    name: int
    count: int
    type: int
    op: int = -1
    root: int = -1

    def __str__(self) -> str:
        text = f"{_NAMES[self.name]} of {self.count} {_dtype(self.type)}"
        if self.op >= 0:
            text += f", {_REDUCTIONS[self.op][0]}"
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
            to = [_bytes(to) for to in parts]
            self.gloo.allgather([to], [_bytes(part)]).wait()

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
            lambda: self.gloo.send([_bytes(torch.tensor(call))], rank, 0).wait(),
            lambda: self.gloo.recv([_bytes(words)], rank, 0).wait(),
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


class Collectives:
    """Answers the calls of hccl_runtime.cpp; each returns an HcclResult, 0 for none."""

    def __init__(self, machine: Machine) -> None:
        self.communicators: dict[int, Communicator] = {}
        self._machine = machine
        self._servers: dict[int, dist.TCPStore] = {}
        self._numbers = iter(range(1, 1 << 62))

    # ---- communicators

    def root_info(self, out: int) -> int:
        listener = socket.create_server((_HOST, 0))
        port = listener.getsockname()[1]
        self._servers[port] = dist.TCPStore(
            _HOST,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=_limit(_CONNECT),
            master_listen_fd=listener.detach(),
        )
        text = f"{port}".encode() + b"\0"
        ctypes.memmove(out, text, len(text))
        return 0

    def comm_init(self, size: int, info: int, rank: int, name: int, out: int) -> int:
        port = int(ctypes.string_at(info))
        limit = _limit(_CONNECT)
        store = self._servers.get(port)
        try:
            if store is None:
                store = dist.TCPStore(_HOST, port, timeout=limit)
            store.set(f"come {rank}", "")
            gloo = _gloo(store, rank, size)
        except Exception as error:
            return self._machine.fail(
                _E_TIMEOUT,
                f"HcclCommInitRootInfo of rank {rank} of {size}: "
                f"{_missing(store, size)}\n{error}",
            )
        number = next(self._numbers)
        called = ctypes.string_at(name).decode() or f"simulated {port}"
        self.communicators[number] = Communicator(called, rank, size, store, gloo)
        ctypes.c_uint64.from_address(out).value = number
        return 0

    def comm_destroy(self, comm: int) -> int:
        # The root's store stays for the others, whose errors read it.
        del self.communicators[comm]
        return 0

    def comm_name(self, comm: int, out: int, room: int) -> int:
        text = self.communicators[comm].name.encode()[: room - 1] + b"\0"
        ctypes.memmove(out, text, len(text))
        return 0

    # ---- collectives

    def all_reduce(
        self,
        source: int,
        to: int,
        count: int,
        type: int,
        op: int,
        comm: int,
        stream: int,
    ) -> int:
        group = self.communicators[comm]
        mine, out = _memory(source, count, type), _memory(to, count, type)

        def run() -> None:
            out.copy_(_reduced(group.gather(mine), op))

        call = Call(_NAMES.index("HcclAllReduce"), count, type, op)
        return self._launch(stream, group, call, [mine, out], run)

    def reduce(
        self,
        source: int,
        to: int,
        count: int,
        type: int,
        op: int,
        root: int,
        comm: int,
        stream: int,
    ) -> int:
        group = self.communicators[comm]
        mine = _memory(source, count, type)
        out = _memory(to, count, type) if group.rank == root else None

        def run() -> None:
            parts = group.gather(mine)
            if out is not None:
                out.copy_(_reduced(parts, op))

        call = Call(_NAMES.index("HcclReduce"), count, type, op, root)
        return self._launch(stream, group, call, [mine, out], run)

    def all_gather(
        self, source: int, to: int, count: int, type: int, comm: int, stream: int
    ) -> int:
        group = self.communicators[comm]
        mine, out = _memory(source, count, type), _memory(to, count * group.size, type)

        def run() -> None:
            group.gather_into(out.view(group.size, count), mine)

        call = Call(_NAMES.index("HcclAllGather"), count, type)
        return self._launch(stream, group, call, [mine, out], run)

    def reduce_scatter(
        self,
        source: int,
        to: int,
        count: int,
        type: int,
        op: int,
        comm: int,
        stream: int,
    ) -> int:
        group = self.communicators[comm]
        mine, out = _memory(source, count * group.size, type), _memory(to, count, type)

        def run() -> None:
            first = group.rank * count
            shards = [part[first : first + count] for part in group.gather(mine)]
            out.copy_(_reduced(shards, op))

        call = Call(_NAMES.index("HcclReduceScatter"), count, type, op)
        return self._launch(stream, group, call, [mine, out], run)

    def broadcast(
        self, buffer: int, count: int, type: int, root: int, comm: int, stream: int
    ) -> int:
        group = self.communicators[comm]
        memory = _memory(buffer, count, type)

        def run() -> None:
            _broadcast(group, memory, root)

        call = Call(_NAMES.index("HcclBroadcast"), count, type, root=root)
        return self._launch(stream, group, call, [memory], run)

    def scatter(
        self,
        source: int,
        to: int,
        count: int,
        type: int,
        root: int,
        comm: int,
        stream: int,
    ) -> int:
        group = self.communicators[comm]
        out = _memory(to, count, type)
        shards = None
        if group.rank == root:
            shards = _memory(source, count * group.size, type)

        def run() -> None:
            every = shards
            if every is None:
                every = torch.empty(count * group.size, dtype=out.dtype)
            _broadcast(group, every, root)
            out.copy_(every.view(group.size, count)[group.rank])

        call = Call(_NAMES.index("HcclScatter"), count, type, root=root)
        return self._launch(stream, group, call, [shards, out], run)

    def all_to_all(
        self,
        source: int,
        send: int,
        type: int,
        to: int,
        receive: int,
        _receive_type: int,
        comm: int,
        stream: int,
    ) -> int:
        group = self.communicators[comm]
        mine = _memory(source, send * group.size, type)
        out = _memory(to, receive * group.size, type)

        def run() -> None:
            parts = [part.view(group.size, send) for part in group.gather(mine)]
            out.copy_(torch.cat([part[group.rank] for part in parts]))

        call = Call(_NAMES.index("HcclAlltoAll"), send, type)
        return self._launch(stream, group, call, [mine, out], run)

    def all_to_all_v(
        self,
        source: int,
        send: int,
        send_at: int,
        type: int,
        to: int,
        receive: int,
        receive_at: int,
        _receive_type: int,
        comm: int,
        stream: int,
    ) -> int:
        group = self.communicators[comm]
        # Host arrays, which need not outlive the call.
        counts, firsts, wanted, places = (
            list((ctypes.c_uint64 * group.size).from_address(address))
            for address in (send, send_at, receive, receive_at)
        )
        ends = [first + count for first, count in zip(firsts, counts, strict=True)]
        out_ends = [place + count for place, count in zip(places, wanted, strict=True)]
        mine, out = _memory(source, max(ends), type), _memory(to, max(out_ends), type)

        def run() -> None:
            table = torch.stack(group.gather(torch.tensor(counts)))
            if (given := table[:, group.rank].tolist()) != wanted:
                raise CollectiveError(
                    f"ranks send {given} to rank {group.rank}, which takes {wanted}"
                )
            packed = torch.cat(
                [mine[at : at + n] for at, n in zip(firsts, counts, strict=True)]
            )
            room = torch.empty(int(table.sum(1).max()), dtype=mine.dtype)
            room[: len(packed)].copy_(packed)
            starts = table.cumsum(1) - table
            for rank, part in enumerate(group.gather(room)):
                start = int(starts[rank, group.rank])
                place, count = places[rank], wanted[rank]
                out[place : place + count].copy_(part[start : start + count])

        # Counts may differ between ranks.
        call = Call(_NAMES.index("HcclAlltoAllV"), 0, type)
        return self._launch(stream, group, call, [mine, out], run)

    def send(
        self, source: int, count: int, type: int, rank: int, comm: int, stream: int
    ) -> int:
        group = self.communicators[comm]
        mine = _memory(source, count, type)
        call = Call(_NAMES.index("HcclSend"), count, type)

        def run() -> None:
            group.agree_with(rank, call, first=True)
            if count:
                group.gloo.send([_bytes(mine)], rank, 0).wait()

        return self._launch(stream, group, call, [mine], run, f" to rank {rank}")

    def recv(
        self, to: int, count: int, type: int, rank: int, comm: int, stream: int
    ) -> int:
        group = self.communicators[comm]
        out = _memory(to, count, type)
        call = Call(_NAMES.index("HcclSend"), count, type)

        def run() -> None:
            group.agree_with(rank, call, first=False)
            if count:
                group.gloo.recv([_bytes(out)], rank, 0).wait()

        return self._launch(
            stream, group, call, [out], run, f" received from rank {rank}"
        )

    def _launch(
        self,
        stream: int,
        group: Communicator,
        call: Call,
        memory: list[torch.Tensor | None],
        run: Callable[[], None],
        peer: str = "",
    ) -> int:
        what = f"{call}{peer}"

        def task() -> None:
            # A message concerns two ranks, which compare it themselves.
            try:
                if not peer:
                    group.note(what)
                    group.agree(call)
                run()
            except CollectiveError:
                raise
            except Exception as error:
                raise CollectiveError(
                    f"{what}, on rank {group.rank} of {group.size} of {group.name}: "
                    f"{error}\n{group.positions()}"
                ) from error

        if self._machine.is_captured(stream):
            self._machine.note_memory(
                (part.data_ptr(), part.data_ptr() + part.nbytes)
                for part in memory
                if part is not None and part.numel()
            )
        self._machine.launch(stream, Task(what, task))
        return 0


def connect(core: ctypes.CDLL, machine: Machine) -> tuple[Collectives, object]:
    """Make a Collectives answer ``core``'s HCCL functions; keep both as long as it."""
    collectives = Collectives(machine)
    core.simulated_hccl_calls.restype = ctypes.c_char_p
    calls = core.simulated_hccl_calls().decode().split()
    methods = [getattr(collectives, name) for name in calls]
    arities = [method.__func__.__code__.co_argcount - 1 for method in methods]

    def handle(call: int, words: ctypes._Pointer) -> int:
        try:
            return methods[call](*words[: arities[call]])
        except _Unsupported as error:
            return machine.fail(_E_NOT_SUPPORT, f"{calls[call]}: {error}")
        except Exception:
            text = f"{calls[call]} failed:\n{traceback.format_exc()}"
            print(text, file=sys.stderr)
            return machine.fail(_E_INTERNAL, text)

    handler = _HANDLER(handle)
    core.simulated_hccl_start(handler)
    return collectives, handler


def _limit(variable: str) -> timedelta:
    return timedelta(seconds=float(os.environ.get(variable) or _SECONDS))


def _gloo(store: dist.Store, rank: int, size: int) -> dist.ProcessGroupGloo:
    options = dist.ProcessGroupGloo._Options()
    # The name of the machine need not be an address of it.
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=_HOST)]
    options._timeout = _limit(_EXECUTE)
    options._threads = 1
    return dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, options)


def _missing(store: dist.Store | None, size: int) -> str:
    if store is None:
        return "the root is gone"
    try:
        there = [store.check([f"come {rank}"]) for rank in range(size)]
    except Exception as error:
        return f"the root is gone: {error}"
    missing = [rank for rank, came in enumerate(there) if not came]
    return f"ranks {missing} did not come" if missing else "all ranks came"


def _dtype(type: int) -> str:
    return str(_TYPES[type]).removeprefix("torch.")


def _memory(address: int, count: int, type: int) -> torch.Tensor:
    """A tensor over device memory, without a copy; it keeps nothing alive."""
    dtype = _TYPES.get(type)
    if dtype is None:
        raise _Unsupported(f"HcclDataType {type} is not simulated")
    if count == 0:
        return torch.empty(0, dtype=dtype)
    block = (ctypes.c_byte * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(block, dtype=dtype)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


def _reduced(parts: Sequence[torch.Tensor], op: int) -> torch.Tensor:
    dtype = parts[0].dtype
    half = dtype in (torch.float16, torch.bfloat16)
    total = parts[0].float() if half else parts[0].clone()
    for part in parts[1:]:
        total = _REDUCTIONS[op][1](total, part.to(total.dtype))
    return total.to(dtype)


def _broadcast(group: Communicator, memory: torch.Tensor, root: int) -> None:
    if memory.numel():
        options = dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        group.gloo.broadcast([_bytes(memory)], options).wait()
