"""Attention of one sequence, and what of a paged cache belongs to it."""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import wrong


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, visible: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Softmax attention in float32.

    query: (q, heads, size); key: (kv, kv_heads, size); value: (kv, kv_heads, out);
    visible: bool, (q, kv), what a row may see, None for all. Head h reads key head h //
    (heads / kv_heads).
    Returns float32 (q, heads, out), zeros for a row that sees nothing, and the
    logarithm of the sum of exponentials, float32 (q, heads, 1).
    """
    group = query.shape[1] // key.shape[1]
    keys = key.float().repeat_interleave(group, 1)
    values = value.float().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * scale
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    if not len(key):
        shape = (query.shape[0], query.shape[1], value.shape[2])
        return torch.zeros(shape), torch.full((*shape[:2], 1), -torch.inf)
    weights = scores.softmax(-1)
    if visible is not None:
        weights = weights.masked_fill(~visible.any(-1)[:, None], 0)
    lse = scores.logsumexp(-1)
    return torch.einsum("hqk,khd->qhd", weights, values), lse.T[..., None]


def blocks_of(
    op: str, table: Tensor, sequence: int, length: int, *, size: int, blocks: int
) -> Tensor:
    """The blocks that hold the first `length` tokens of a sequence: int64, in order.

    size: tokens of a block; blocks: how many blocks the cache has.
    Raises ValueError where the table has too few columns or names no block of them.
    """
    needed = -(-length // size)
    if needed > table.shape[1]:
        rule = f"has too few columns for {length} tokens in blocks of {size}"
        raise wrong(op, "block_table", table, rule)
    row = table[sequence, :needed].long()
    if needed and (row.min() < 0 or row.max() >= blocks):
        rule = f"of sequence {sequence} leaves the {blocks} blocks"
        raise wrong(op, "block_table", row.tolist(), rule)
    return row


def check_workspace(op: str, workspace: Tensor | None, needed: int) -> None:
    """Raise ValueError where a workspace is given and has fewer bytes than `needed`.

    Without one the real operator allocates for itself, so None is right.
    """
    if workspace is None:
        return
    given = workspace.numel() * workspace.element_size()
    if given < needed:
        rule = f"has {given} bytes, fewer than the {needed} that the operator needs"
        raise wrong(op, "workspace", workspace, rule)


def workspace_bytes(heads: int, tokens: int, out_size: int, capacity: int) -> int:
    """A simulated size: what CANN would ask for is not known.

    float32 for an accumulator, a maximum and a sum per token and head, and a row of
    scores per head. capacity: the keys that the shapes allow one sequence, not the
    lengths of the moment, so that lengths may change without a new workspace.
    """
    return 4 * heads * (tokens * (out_size + 2) + capacity)
