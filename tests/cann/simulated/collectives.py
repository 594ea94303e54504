"""HCCL's collectives between processes of this machine: answers hccl_runtime.cpp.

Each is one task of its stream, so a captured one runs at the replays. Bytes travel by
gloo; each rank reduces all ranks' parts itself, in the order of the ranks. float16 and
bfloat16 are summed in float32 and rounded once, which hardware need not do.
"""

# The parameters are those of HCCL's functions.
# ruff: noqa: PLR0917

from __future__ import annotations

import ctypes
import socket
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist

from simulated.communicators import (
    CONNECT,
    HOST,
    NAMES,
    Call,
    CollectiveError,
    Communicator,
    Unsupported,
    broadcast_from,
    bytes_of,
    gloo_group,
    memory_at,
    missing_ranks,
    reduced,
    time_limit,
)
from simulated.machine import Machine
from simulated.tasks import Task

_HANDLER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))
# By the number of HcclResult.
_E_INTERNAL, _E_NOT_SUPPORT, _E_TIMEOUT = 4, 5, 9


class Collectives:
    """Answers the calls of hccl_runtime.cpp; each returns an HcclResult, 0 for none."""

    def __init__(self, machine: Machine) -> None:
        self.communicators: dict[int, Communicator] = {}
        self._machine = machine
        self._servers: dict[int, dist.TCPStore] = {}
        self._numbers = iter(range(1, 1 << 62))

    # ---- communicators

    def root_info(self, out: int) -> int:
        listener = socket.create_server((HOST, 0))
        port = listener.getsockname()[1]
        self._servers[port] = dist.TCPStore(
            HOST,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=time_limit(CONNECT),
            master_listen_fd=listener.detach(),
        )
        text = f"{port}".encode() + b"\0"
        ctypes.memmove(out, text, len(text))
        return 0

    def comm_init(self, size: int, info: int, rank: int, name: int, out: int) -> int:
        port = int(ctypes.string_at(info))
        limit = time_limit(CONNECT)
        store = self._servers.get(port)
        try:
            if store is None:
                store = dist.TCPStore(HOST, port, timeout=limit)
            store.set(f"come {rank}", "")
            gloo = gloo_group(store, rank, size)
        except Exception as error:
            return self._machine.fail(
                _E_TIMEOUT,
                f"HcclCommInitRootInfo of rank {rank} of {size}: "
                f"{missing_ranks(store, size)}\n{error}",
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
        mine, out = memory_at(source, count, type), memory_at(to, count, type)

        def run() -> None:
            out.copy_(reduced(group.gather(mine), op))

        call = Call(NAMES.index("HcclAllReduce"), count, type, op)
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
        mine = memory_at(source, count, type)
        out = memory_at(to, count, type) if group.rank == root else None

        def run() -> None:
            parts = group.gather(mine)
            if out is not None:
                out.copy_(reduced(parts, op))

        call = Call(NAMES.index("HcclReduce"), count, type, op, root)
        return self._launch(stream, group, call, [mine, out], run)

    def all_gather(
        self, source: int, to: int, count: int, type: int, comm: int, stream: int
    ) -> int:
        group = self.communicators[comm]
        mine, out = (
            memory_at(source, count, type),
            memory_at(to, count * group.size, type),
        )

        def run() -> None:
            group.gather_into(out.view(group.size, count), mine)

        call = Call(NAMES.index("HcclAllGather"), count, type)
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
        mine, out = (
            memory_at(source, count * group.size, type),
            memory_at(to, count, type),
        )

        def run() -> None:
            first = group.rank * count
            shards = [part[first : first + count] for part in group.gather(mine)]
            out.copy_(reduced(shards, op))

        call = Call(NAMES.index("HcclReduceScatter"), count, type, op)
        return self._launch(stream, group, call, [mine, out], run)

    def broadcast(
        self, buffer: int, count: int, type: int, root: int, comm: int, stream: int
    ) -> int:
        group = self.communicators[comm]
        memory = memory_at(buffer, count, type)

        def run() -> None:
            broadcast_from(group, memory, root)

        call = Call(NAMES.index("HcclBroadcast"), count, type, root=root)
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
        out = memory_at(to, count, type)
        shards = None
        if group.rank == root:
            shards = memory_at(source, count * group.size, type)

        def run() -> None:
            every = shards
            if every is None:
                every = torch.empty(count * group.size, dtype=out.dtype)
            broadcast_from(group, every, root)
            out.copy_(every.view(group.size, count)[group.rank])

        call = Call(NAMES.index("HcclScatter"), count, type, root=root)
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
        mine = memory_at(source, send * group.size, type)
        out = memory_at(to, receive * group.size, type)

        def run() -> None:
            parts = [part.view(group.size, send) for part in group.gather(mine)]
            out.copy_(torch.cat([part[group.rank] for part in parts]))

        call = Call(NAMES.index("HcclAlltoAll"), send, type)
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
        mine, out = (
            memory_at(source, max(ends), type),
            memory_at(to, max(out_ends), type),
        )

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
        call = Call(NAMES.index("HcclAlltoAllV"), 0, type)
        return self._launch(stream, group, call, [mine, out], run)

    def send(
        self, source: int, count: int, type: int, rank: int, comm: int, stream: int
    ) -> int:
        group = self.communicators[comm]
        mine = memory_at(source, count, type)
        call = Call(NAMES.index("HcclSend"), count, type)

        def run() -> None:
            group.agree_with(rank, call, first=True)
            if count:
                group.gloo.send([bytes_of(mine)], rank, 0).wait()

        return self._launch(stream, group, call, [mine], run, f" to rank {rank}")

    def recv(
        self, to: int, count: int, type: int, rank: int, comm: int, stream: int
    ) -> int:
        group = self.communicators[comm]
        out = memory_at(to, count, type)
        call = Call(NAMES.index("HcclSend"), count, type)

        def run() -> None:
            group.agree_with(rank, call, first=False)
            if count:
                group.gloo.recv([bytes_of(out)], rank, 0).wait()

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
        except Unsupported as error:
            return machine.fail(_E_NOT_SUPPORT, f"{calls[call]}: {error}")
        except Exception:
            text = f"{calls[call]} failed:\n{traceback.format_exc()}"
            print(text, file=sys.stderr)
            return machine.fail(_E_INTERNAL, text)

    handler = _HANDLER(handle)
    core.simulated_hccl_start(handler)
    return collectives, handler
