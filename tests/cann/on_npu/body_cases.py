"""What the tests of the bodies draw, and how near a body has to come."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

few = settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

dtypes = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
seeds = st.integers(0, 2**32 - 1)

# One rounding to the dtype, of half an epsilon (2**-10, 2**-7), for results of order 1,
# and as much again where the arguments were rounded or a sum is; for float32 (2**-23)
# the error of sums of some hundred terms.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1.5e-3, torch.bfloat16: 1e-2}


def near(got: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    """Assert that a body's result is the float64 reference, rounded once."""
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance)


def random(seed: int, *shape: int, dtype: torch.dtype) -> Tensor:
    """Normal values, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def paged(
    rows: list[Tensor], block_size: int, seed: int, spare: int = 2
) -> tuple[Tensor, Tensor]:
    """A cache that holds the rows of each sequence in shuffled blocks, and its table.

    rows: per sequence (tokens, ...). Everything that belongs to no sequence is NaN, the
    ends of last blocks too, and the table's unused entries name such a block.
    """
    needed = [-(-len(of_one) // block_size) for of_one in rows]
    total = sum(needed) + spare
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    table = torch.full((len(rows), max([*needed, 1]) + 1), int(order[-1]))
    cache = torch.full(
        (total, block_size, *rows[0].shape[1:]), torch.nan, dtype=rows[0].dtype
    )
    at = 0
    for sequence, of_one in enumerate(rows):
        for column in range(needed[sequence]):
            part = of_one[column * block_size : (column + 1) * block_size]
            table[sequence, column] = order[at]
            cache[order[at], : len(part)] = part
            at += 1
    return cache, table.int()
