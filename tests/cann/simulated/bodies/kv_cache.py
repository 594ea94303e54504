"""Writing keys and values into the paged cache."""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import body, refuse_unmodelled, unmodelled, wrong


@body("npu::npu_scatter_pa_kv_cache")
def npu_scatter_pa_kv_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:
    """Write the keys and values of tokens to their slots.

    key, value: (tokens, heads, size), the size of each its own. slot_mapping: int32 or
    int64, (tokens,), block * block_size + offset. Caches, of the dtype of key: (blocks,
    block_size, heads, size) for cache_mode None or "Norm"; for "PA_NZ" (blocks, heads *
    size / last, block_size, last), a token's elements in runs of `last`.
    Where a slot is named twice the last token stays, which the op does not promise.
    Raises ValueError for shapes or dtypes that do not fit and slots outside the cache
    (negative ones too: the documented range starts at 0), NotImplementedError for
    another cache_mode, keys of 4 dimensions and the compression arguments.
    Source: "torch_npu.npu_scatter_pa_kv_cache" (Ascend Extension for PyTorch, API
    reference).
    """
    op = "npu::npu_scatter_pa_kv_cache"
    refuse_unmodelled(
        op,
        compress_lens=compress_lens,
        compress_seq_offsets=compress_seq_offsets,
        seq_lens=seq_lens,
    )
    if cache_mode not in (None, "Norm", "PA_NZ"):
        raise unmodelled(op, "cache_mode", cache_mode)
    if key.dim() == 4:
        raise unmodelled(op, "key", key)
    in_runs = cache_mode == "PA_NZ"
    pairs = (("key", key, key_cache), ("value", value, value_cache))
    _check(op, pairs, "slot_mapping", slot_mapping, in_runs)
    _write(op, pairs, "slot_mapping", slot_mapping, in_runs)


@body("atb::_npu_reshape_and_cache")
def npu_reshape_and_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_indices: Tensor,
) -> None:
    """Write the keys and values of tokens to their slots; slot -1 is padding.

    key, value: (tokens, heads, size). slot_indices: integers, (tokens,), block *
    block_size + offset, or -1 for a token that is not stored. Caches, of the dtype of
    key: (blocks, block_size, heads, size).
    Where a slot is named twice the last token stays, which the op does not promise.
    Raises ValueError for shapes or dtypes that do not fit and other slots.
    Source: "ReshapeAndCacheOperation" (CANN, ATB operators); -1 is vLLM's padding.
    """
    op = "atb::_npu_reshape_and_cache"
    pairs = (("key", key, key_cache), ("value", value, value_cache))
    _check(op, pairs, "slot_indices", slot_indices, in_runs=False)
    stored = slot_indices != -1
    pairs = tuple((name, rows[stored], cache) for name, rows, cache in pairs)
    _write(op, pairs, "slot_indices", slot_indices[stored], in_runs=False)


Pairs = tuple[tuple[str, Tensor, Tensor], ...]


def _check(
    op: str, pairs: Pairs, slots_name: str, slots: Tensor, in_runs: bool
) -> None:
    if slots.dim() != 1 or slots.dtype not in (torch.int32, torch.int64):
        raise wrong(op, slots_name, slots, "is not a list of int32 or int64")
    dtype, heads = pairs[0][1].dtype, pairs[0][1].shape[1:2]
    for name, rows, cache in pairs:
        if rows.dim() != 3 or len(rows) != len(slots) or rows.shape[1:2] != heads:
            raise wrong(
                op, name, rows, f"is not (tokens, heads, size) of {len(slots)} tokens"
            )
        if rows.dtype != dtype or cache.dtype != dtype:
            raise wrong(op, f"{name}_cache", cache, f"or {name} is not {dtype}")
        if in_runs:
            sizes = cache.shape[1:2].numel() * cache.shape[3:].numel()
            fits = sizes == rows.shape[1:].numel()
        else:
            fits = cache.shape[2:] == rows.shape[1:]
        if cache.dim() != 4 or not fits:
            raise wrong(
                op, f"{name}_cache", cache, f"does not hold {name} {tuple(rows.shape)}"
            )


def _write(
    op: str, pairs: Pairs, slots_name: str, slots: Tensor, in_runs: bool
) -> None:
    sizes = {cache.shape[0] * cache.shape[2 if in_runs else 1] for _, _, cache in pairs}
    if len(sizes) > 1:
        raise wrong(
            op, "value_cache", pairs[1][2], "has not as many slots as key_cache"
        )
    limit = sizes.pop()
    outside = [slot for slot in slots.tolist() if not 0 <= slot < limit]
    if outside:
        raise wrong(op, slots_name, outside, f"lies outside the {limit} slots")
    # An indexed write with an index twice is in no order: the last is picked here.
    last = {slot: token for token, slot in enumerate(slots.tolist())}
    at = torch.tensor(list(last), dtype=torch.int64)
    tokens = torch.tensor(list(last.values()), dtype=torch.int64)
    for _, rows, cache in pairs:
        if in_runs:
            size = cache.shape[2]
            runs = rows[tokens].reshape(len(tokens), cache.shape[1], cache.shape[3])
            cache[at // size, :, at % size] = runs
        else:
            size = cache.shape[1]
            cache[at // size, at % size] = rows[tokens]
