"""One rank of the tests of collectives: runs every case and saves what it got.

``python rank_program.py RANK WORLD FOLDER``; the tests compute what to expect from
``given``, without torch_npu.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# 512 bytes of float32: the parts of an all_gather to a list torch_npu pads to a
# multiple of that, by a kernel of CANN.
SHARD = 128
ROUNDS = 3
SECONDS = 3
TYPES = (torch.float32, torch.bfloat16)
SPLITS = {
    2: [[1, 4], [3, 2]],
    4: [[1, 0, 2, 3], [2, 2, 0, 1], [0, 1, 1, 4], [5, 0, 0, 0]],
}
# Ranks of a group whose numbers there differ from those in the world.
SUBGROUP = {2: [1], 4: [1, 3]}


def given(rank: int, turn: int, dtype: torch.dtype, numel: int) -> torch.Tensor:
    """The input of ``rank``: exact in bfloat16, so that sums are exact in float32."""
    generator = torch.Generator().manual_seed(1000 * turn + rank)
    if not dtype.is_floating_point:
        return torch.randint(1, 4, (numel,), generator=generator).to(dtype)
    return torch.randn(numel, generator=generator).bfloat16().to(dtype)


def _main(rank: int, world: int, folder: Path) -> None:
    from simulated.start import start

    start(devices=world)
    torch.npu.set_device(rank)
    dist.init_process_group(
        "hccl", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=world
    )
    got: dict[str, Any] = {}
    for dtype in TYPES:
        _gathering(rank, world, dtype, got)
    _reductions(rank, got)
    _others(rank, world, got)
    group = dist.new_group(SUBGROUP[world])
    if rank in SUBGROUP[world]:
        value = given(rank, 0, torch.float32, SHARD).npu()
        dist.all_reduce(value, group=group)
        got["subgroup"] = value.cpu()
        got["subgroup graph"] = _replayed(
            rank, torch.float32, SHARD, lambda x: _all_reduce(x, group)
        )
    if world == 2:
        _failures(rank, got)
    torch.save(got, folder / f"{rank}.pt")
    # A communicator that lost a rank has no orderly end.
    sys.stdout.flush()
    os._exit(0)


def _all_reduce(value: torch.Tensor, group: Any = None) -> torch.Tensor:
    value = value * 2
    dist.all_reduce(value, group=group)
    return value


def _all_gather(value: torch.Tensor) -> torch.Tensor:
    out = value.new_empty(value.numel() * dist.get_world_size())
    dist.all_gather_into_tensor(out, value)
    return out


def _reduce_scatter(value: torch.Tensor) -> torch.Tensor:
    out = value.new_empty(value.numel() // dist.get_world_size())
    dist.reduce_scatter_tensor(out, value)
    return out


def _gathering(rank: int, world: int, dtype: torch.dtype, got: dict[str, Any]) -> None:
    for numel, body in (
        (SHARD, _all_reduce),
        (SHARD, _all_gather),
        (SHARD * world, _reduce_scatter),
    ):
        name = f"{body.__name__[1:]} {dtype}"
        got[f"{name} eager"] = [
            body(given(rank, turn, dtype, numel).npu()).cpu() for turn in range(ROUNDS)
        ]
        got[f"{name} graph"] = _replayed(rank, dtype, numel, body)


def _replayed(
    rank: int,
    dtype: torch.dtype,
    numel: int,
    body: Callable[[torch.Tensor], torch.Tensor],
) -> list[torch.Tensor]:
    """What three replays give; the first element says that the capture gave nothing."""
    static = torch.zeros(numel, dtype=dtype, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        after = body(static) + 1
    results = [after.cpu()]
    for turn in range(ROUNDS):
        static.copy_(given(rank, turn, dtype, numel))
        graph.replay()
        results.append(after.cpu())
    return results


def _reductions(rank: int, got: dict[str, Any]) -> None:
    ops = (
        dist.ReduceOp.SUM,
        dist.ReduceOp.PRODUCT,
        dist.ReduceOp.MAX,
        dist.ReduceOp.MIN,
    )
    for dtype in (*TYPES, torch.float16, torch.int8, torch.int32, torch.int64):
        for op in ops:
            value = given(rank, 0, dtype, SHARD).npu()
            dist.all_reduce(value, op)
            got[f"{op} {dtype}"] = value.cpu()


def _others(rank: int, world: int, got: dict[str, Any]) -> None:
    value = given(rank, 0, torch.float32, SHARD).npu()
    many = given(rank, 0, torch.float32, SHARD * world).npu()

    parts = [torch.empty_like(value) for _ in range(world)]
    dist.all_gather(parts, value)
    got["all_gather list"] = torch.cat(parts).cpu()

    out = torch.empty_like(value)
    dist.reduce_scatter(out, list(many.chunk(world)))
    got["reduce_scatter list"] = out.cpu()

    for dtype in (torch.uint8, torch.float32):
        out = given(rank, 0, dtype, SHARD).npu()
        dist.broadcast(out, src=1)
        got[f"broadcast {dtype}"] = out.cpu()

    out = value.clone()
    dist.reduce(out, dst=1)
    got["reduce"] = out.cpu()

    out = torch.empty_like(value)
    dist.scatter(out, list(many.chunk(world)) if rank == 1 else None, src=1)
    got["scatter"] = out.cpu()

    out = torch.empty_like(many)
    dist.all_to_all_single(out, many)
    got["all_to_all"] = out.cpu()

    send = SPLITS[world][rank]
    receive = [splits[rank] for splits in SPLITS[world]]
    out = many.new_empty(sum(receive))
    dist.all_to_all_single(out, many[: sum(send)].clone(), receive, send)
    got["all_to_all splits"] = out.cpu()

    # A ring in turn: each rank passes on what it has received.
    out = value.clone()
    if rank == 0:
        dist.send(out, 1)
        dist.recv(out, world - 1)
    else:
        dist.recv(out, rank - 1)
        dist.send(out, (rank + 1) % world)
    got["ring"] = out.cpu()

    dist.barrier()


def _failures(rank: int, got: dict[str, Any]) -> None:
    """The world of two ranks; a communicator is made by its first collective."""
    os.environ["HCCL_EXEC_TIMEOUT"] = os.environ["HCCL_CONNECT_TIMEOUT"] = str(SECONDS)
    group, unmet = dist.new_group([0, 1]), dist.new_group([0, 1])
    value = torch.ones(8, device="npu")
    dist.all_reduce(value, group=group)

    got["other count"] = _error(
        lambda: dist.all_reduce(torch.ones(8 - rank, device="npu"), group=group)
    )
    dtype = TYPES[rank]
    got["other type"] = _error(
        lambda: dist.all_reduce(torch.ones(8, device="npu", dtype=dtype), group=group)
    )
    got["message"] = _error(
        lambda: (
            dist.send(torch.ones(3, device="npu"), 1, group=group)
            if rank == 0
            else dist.recv(torch.ones(4, device="npu"), 0, group=group)
        )
    )
    # None of them took the communicator out of step.
    dist.all_reduce(value, group=group)
    got["after"] = value.cpu()
    if rank == 0:
        got["alone"] = _error(lambda: dist.all_reduce(value, group=group))
        got["unmet"] = _error(lambda: dist.all_reduce(value, group=unmet))
    store = dist.distributed_c10d._get_default_store()
    store.set(f"over {rank}", "")
    store.wait(["over 0", "over 1"])


def _error(body: Callable[[], object]) -> str:
    try:
        body()
        torch.npu.synchronize()
    except RuntimeError:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
