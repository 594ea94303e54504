"""The slot mapping on an NPU, against where the definition says that a token lies."""

from __future__ import annotations

import random

import pytest
import torch
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.worker.block_table import BlockTable

MAX_TOKENS = 64
MAX_REQUESTS = 6


def table(rows: list[list[int]], block_size: int, kernel_block_size: int) -> BlockTable:
    made = BlockTable(
        block_size=block_size,
        max_num_reqs=MAX_REQUESTS,
        max_num_blocks_per_req=16,
        max_num_batched_tokens=MAX_TOKENS,
        pin_memory=False,
        device=torch.device("npu:0"),
        kernel_block_size=kernel_block_size,
        cp_kv_cache_interleave_size=1,
    )
    for number, blocks in enumerate(rows):
        made.add_row(blocks, number)
    made.commit_block_table(len(rows))
    return made


def expected(
    rows: list[list[int]], lengths: list[int], starts: list[int], block_size: int
) -> list[int]:
    """Block n of the cache holds the slots n * block_size to (n + 1) * block_size."""
    return [
        rows[request][position // block_size] * block_size + position % block_size
        for request, (length, start) in enumerate(zip(lengths, starts, strict=True))
        for position in range(start, start + length)
    ]


def positions(lengths: list[int], starts: list[int]) -> torch.Tensor:
    pairs = zip(lengths, starts, strict=True)
    flat = [p for length, start in pairs for p in range(start, start + length)]
    return torch.tensor(flat, dtype=torch.int64).npu()


def ends(lengths: list[int], size: int) -> torch.Tensor:
    """query_start_loc as the runner has it: what is behind the last one stays there."""
    total = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return torch.cat([total, total[-1:].expand(size - len(total))]).npu()


# Tokens of each request in the step, and where each begins in its sequence.
STEPS = {
    "one prompt": ([20], [0]),
    "decodes": ([1, 1, 1], [0, 15, 16]),
    "mixed": ([1, 17, 5, 1], [37, 0, 14, 63]),
    "none": ([3, 0, 2], [1, 5, 30]),
    "full": ([32, 32], [0, 7]),
}


@pytest.mark.parametrize("kernel_block_size", [4, 8, 16])
@pytest.mark.parametrize("step", STEPS)
def test_slots_of_a_step(step: str, kernel_block_size: int) -> None:
    lengths, starts = STEPS[step]
    numbers = random.Random(step)
    blocks = numbers.sample(range(1, 200), 16 * len(lengths))
    rows = [blocks[i :: len(lengths)] for i in range(len(lengths))]
    # The cache is allocated in blocks of 16, whatever the kernel's are.
    wanted = expected(rows, lengths, starts, 16)
    made = table(rows, 16, kernel_block_size)
    made.slot_mapping.gpu.fill_(77)
    made.compute_slot_mapping(
        len(lengths), ends(lengths, MAX_REQUESTS + 1), positions(lengths, starts)
    )
    rest = [PAD_SLOT_ID] * (MAX_TOKENS - len(wanted))
    assert made.slot_mapping.gpu.tolist() == wanted + rest


def test_padding_behind_the_last_request_is_in_the_table() -> None:
    """As many positions as a graph has tokens; those behind are of any request."""
    rows = [[3, 4], [7, 9]]
    made = table(rows, 16, 16)
    padded = torch.cat([positions([2, 1], [15, 4]), torch.zeros(5).long().npu()])
    made.compute_slot_mapping(2, ends([2, 1], 3), padded)
    slots = made.slot_mapping.gpu.tolist()
    assert slots[:3] == expected(rows, [2, 1], [15, 4], 16)
    assert set(slots[3:8]) <= {block * 16 for row in rows for block in row}
    assert slots[8:] == [PAD_SLOT_ID] * (MAX_TOKENS - 8)
