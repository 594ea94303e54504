"""Decoding attention over the paged cache."""

# ruff: noqa: PLR0917 (signatures are those of operators)
from __future__ import annotations

import torch
from torch import Tensor

from .attention_math import attend, blocks_of, check_workspace, workspace_bytes
from .registry import body, wrong


@body("atb::_npu_paged_attention")
def npu_paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: Tensor,
    context_lens: Tensor,
    out: Tensor,
    *,
    workspace: Tensor | None = None,
) -> None:
    """One query token per sequence over its cached keys; written to `out`.

    query, out: (sequences, num_heads, size), of one dtype. Caches: (blocks, block_size,
    num_kv_heads, size), of that dtype. block_table: integers, (sequences, columns).
    context_lens: integers, (sequences,), tokens in the cache with the present one.
    Computed in float32. workspace: None, or at least the simulated size that
    _npu_paged_attention_get_workspace gives.
    Raises ValueError for shapes, dtypes, lengths or a workspace that do not fit.
    Source: "PagedAttentionOperation" (CANN, ATB operators).
    """
    op = "atb::_npu_paged_attention"
    _check(op, query, key_cache, value_cache, num_kv_heads, num_heads, block_table, out)
    if context_lens.shape != (len(query),) or (context_lens < 1).any():
        shown = context_lens.tolist()
        raise wrong(op, "context_lens", shown, f"is not {len(query)} lengths above 0")
    size = _bytes(query, value_cache, num_heads, key_cache, block_table)
    check_workspace(op, workspace, size)
    blocks, block_size = key_cache.shape[:2]
    rows = []
    for sequence, length in enumerate(context_lens.tolist()):
        held = blocks_of(
            op, block_table, sequence, length, size=block_size, blocks=blocks
        )
        key = key_cache[held].flatten(0, 1)[:length]
        value = value_cache[held].flatten(0, 1)[:length]
        token = query[sequence : sequence + 1]
        rows.append(attend(token, key, value, scale_value, None)[0])
    out.copy_(torch.cat(rows) if rows else out)


@body("atb::_npu_paged_attention_get_workspace")
def npu_paged_attention_get_workspace(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: Tensor,
    context_lens: Tensor,
    out: Tensor,
) -> Tensor:
    """A workspace for _npu_paged_attention with these arguments: uint8, (bytes,).

    The size is simulated; it grows with tokens, heads, head size and the columns of
    block_table, and not with context_lens.
    Raises ValueError for shapes that do not fit.
    """
    op = "atb::_npu_paged_attention_get_workspace"
    _check(op, query, key_cache, value_cache, num_kv_heads, num_heads, block_table, out)
    size = _bytes(query, value_cache, num_heads, key_cache, block_table)
    return torch.empty(size, dtype=torch.uint8)


def _bytes(
    query: Tensor, value_cache: Tensor, heads: int, key_cache: Tensor, table: Tensor
) -> int:
    capacity = table.shape[1] * key_cache.shape[1]
    return workspace_bytes(heads, len(query), value_cache.shape[3], capacity)


def _check(
    op: str,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    num_kv_heads: int,
    num_heads: int,
    block_table: Tensor,
    out: Tensor,
) -> None:
    if query.dim() != 3 or query.shape[1] != num_heads:
        raise wrong(op, "query", query, f"is not (sequences, {num_heads} heads, size)")
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise wrong(op, "num_kv_heads", num_kv_heads, f"does not divide {num_heads}")
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        by_head = (num_kv_heads, query.shape[2])
        if cache.dim() != 4 or cache.shape[2:] != by_head or cache.dtype != query.dtype:
            raise wrong(op, name, cache, f"does not go with query {tuple(query.shape)}")
        if cache.shape != key_cache.shape:
            raise wrong(op, name, cache, f"is not as key_cache {key_cache.shape}")
    if block_table.dim() != 2 or len(block_table) != len(query):
        raise wrong(op, "block_table", block_table, f"has not {len(query)} rows")
    if out.shape != query.shape or out.dtype != query.dtype:
        raise wrong(op, "out", out, f"is not as query {tuple(query.shape)}")
