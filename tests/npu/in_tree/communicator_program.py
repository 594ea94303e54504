"""One rank of a tensor parallel group of vLLM's: runs its collectives, saves results.

``python communicator_program.py RANK WORLD FOLDER``; the test computes what to expect
from ``given``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

# 512 bytes: what torch_npu gathers to one rank it pads to a multiple of that, by a
# kernel that is not simulated.
SHAPE = (4, 32)


def given(rank: int) -> torch.Tensor:
    """The input of ``rank``: small whole numbers, so that sums are exact."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-9, 10, SHAPE, generator=generator).float()


def main(rank: int, world: int, folder: Path) -> None:
    """Set vLLM's groups up as a worker does, run every collective."""
    from vllm.config import ParallelConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.distributed.communication_op import (
        tensor_model_parallel_all_gather,
        tensor_model_parallel_all_reduce,
        tensor_model_parallel_gather,
        tensor_model_parallel_reduce_scatter,
    )
    from vllm.platforms import current_platform

    config = VllmConfig(parallel_config=ParallelConfig(tensor_parallel_size=world))
    current_platform.set_device(torch.device(f"npu:{rank}"))
    got: dict[str, Any] = {}
    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(
            world,
            rank,
            f"file://{folder / 'meet'}",
            rank,
            current_platform.dist_backend,
        )
        parallel_state.initialize_model_parallel(world)
        group = parallel_state.get_tp_group()
        got["communicator"] = type(group.device_communicator).__name__
        got["backend"] = torch.distributed.get_backend(group.device_group)
        got["ops"] = group.use_custom_op_call
        x = given(rank).npu()
        got["all_reduce"] = tensor_model_parallel_all_reduce(x).cpu()
        got["input"] = x.cpu()
        for dim in (0, -1):
            got[f"all_gather {dim}"] = tensor_model_parallel_all_gather(x, dim).cpu()
            scattered = tensor_model_parallel_reduce_scatter(x, dim)
            got[f"reduce_scatter {dim}"] = scattered.cpu()
        gathered = tensor_model_parallel_gather(x, dst=1, dim=0)
        got["gather"] = None if gathered is None else gathered.cpu()
        got["broadcast"] = group.broadcast(x.clone(), src=1).cpu()
        torch.npu.synchronize()
    torch.save(got, folder / f"{rank}.pt")
    # A communicator that loses a rank has no orderly end.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
