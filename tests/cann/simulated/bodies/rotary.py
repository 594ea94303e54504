"""Rotary position embedding."""

# ruff: noqa: PLR0917 (signatures are those of operators)
from __future__ import annotations

import torch
from torch import Tensor

from .registry import body, refuse_unmodelled, unmodelled, wrong

# The dimension that counts the heads, over which cos and sin are spread.
HEADS_OF_LAYOUT = {"BSND": 2, "SBND": 2, "BNSD": 1, "TND": 1}


@body("npu::npu_rotary_mul")
def npu_rotary_mul(
    input: Tensor,
    r1: Tensor,
    r2: Tensor,
    rotary_mode: str = "half",
    rotate: Tensor | None = None,
) -> Tensor:
    """r1 * input + r2 * (input, turned by a quarter).

    input: 4 dimensions, the last even, float32, float16 or bfloat16. r1 (cosines) and
    r2 (sines): its shape, or 1 in any dimension but the last. Computed in float32.
    rotary_mode: "half" pairs element i with i + D/2, "interleave" 2i with 2i + 1.
    Returns the shape and the dtype of input.
    Raises ValueError for shapes that do not fit, NotImplementedError for another
    rotary_mode and for `rotate`.
    Source: "torch_npu.npu_rotary_mul" (Ascend Extension for PyTorch, API reference).
    """
    op = "npu::npu_rotary_mul"
    refuse_unmodelled(op, rotate=rotate)
    if input.dim() != 4:
        raise wrong(op, "input", input, "has not 4 dimensions")
    for name, factor in (("r1", r1), ("r2", r2)):
        if not _spreads(factor, input):
            raise wrong(op, name, factor, f"does not spread to {tuple(input.shape)}")
    return _rotated(op, input, r1, r2, rotary_mode)


@body("npu::npu_apply_rotary_pos_emb")
def npu_apply_rotary_pos_emb(
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: str = "BSND",
    rotary_mode: str = "half",
) -> tuple[Tensor, Tensor]:
    """Rotate query and key in place and return them.

    query, key: 4 dimensions in the order of `layout` ("BSND", "SBND", "BNSD"), or 3
    ("TND"), equal but for the number of heads; cos, sin: as query with one head. All
    of one dtype; computed in float32. rotary_mode as for npu_rotary_mul.
    That it writes in place is documented; the schema does not say so.
    Raises ValueError for shapes or dtypes that do not fit, NotImplementedError for
    another layout or rotary_mode and for cos and sin narrower than a head.
    Source: "torch_npu.npu_apply_rotary_pos_emb" (Ascend Extension for PyTorch, API
    reference).
    """
    op = "npu::npu_apply_rotary_pos_emb"
    if layout not in HEADS_OF_LAYOUT:
        raise unmodelled(op, "layout", layout)
    if query.dim() != len(layout):
        raise wrong(op, "query", query, f"is not laid out as {layout}")
    heads = HEADS_OF_LAYOUT[layout]
    if _but(heads, key) != _but(heads, query):
        raise wrong(op, "key", key, f"does not go with query {tuple(query.shape)}")
    for name, other in (("key", key), ("cos", cos), ("sin", sin)):
        if other.dtype != query.dtype:
            raise wrong(op, name, other, f"has not query's dtype {query.dtype}")
    one_head = list(query.shape)
    one_head[heads] = 1
    for name, factor in (("cos", cos), ("sin", sin)):
        if list(factor.shape[:-1]) != one_head[:-1]:
            raise wrong(op, name, factor, f"has not the shape {tuple(one_head)}")
        if factor.shape[-1] != query.shape[-1]:
            raise unmodelled(op, name, factor)
    # Both before either is written: a refusal leaves its arguments alone.
    turned = [_rotated(op, x, cos, sin, rotary_mode) for x in (query, key)]
    return query.copy_(turned[0]), key.copy_(turned[1])


@body("atb::_npu_rotary_embedding")
def npu_rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool,
) -> None:
    """Rotate query and key in place by the angles of their positions.

    positions: integers, (tokens,). query, key: (tokens, heads * head_size) or (tokens,
    heads, head_size). cos_sin_cache: (positions, head_size), cosines in the first
    half of a row and sines in the second. Computed in float32. is_neox_style: pairs
    as in mode "half" of npu_rotary_mul, else as in "interleave".
    Raises ValueError for shapes that do not fit and positions outside the cache,
    NotImplementedError for a cache that turns a part of the head only.
    Source: "RopeOperation" (CANN, ATB operators); the cache's form is vLLM's.
    """
    op = "atb::_npu_rotary_embedding"
    if positions.dim() != 1:
        raise wrong(op, "positions", positions, "has not 1 dimension")
    if cos_sin_cache.shape[-1] != head_size:
        raise unmodelled(op, "cos_sin_cache", cos_sin_cache)
    tokens = len(positions)
    for name, x in (("query", query), ("key", key)):
        by_token = x.dim() in (2, 3) and x.shape[0] == tokens
        last = head_size if x.dim() == 3 else head_size * (x.shape[-1] // head_size)
        if not by_token or x.shape[-1] != last:
            raise wrong(op, name, x, f"is not {tokens} tokens of heads of {head_size}")
    limit = len(cos_sin_cache)
    if tokens and (positions.min() < 0 or positions.max() >= limit):
        raise wrong(op, "positions", positions.tolist(), f"leaves the cache of {limit}")
    mode = "half" if is_neox_style else "interleave"
    cos, sin = cos_sin_cache[positions.long()].float().chunk(2, -1)
    if mode == "half":
        cos, sin = cos.repeat(1, 2), sin.repeat(1, 2)
    else:
        cos, sin = cos.repeat_interleave(2, 1), sin.repeat_interleave(2, 1)
    for x in (query, key):
        by_head = x if x.dim() == 3 else x.unflatten(1, (-1, head_size))
        turned = _rotated(op, by_head, cos[:, None], sin[:, None], mode)
        x.copy_(turned.reshape(x.shape))


def _rotated(op: str, x: Tensor, cos: Tensor, sin: Tensor, mode: str) -> Tensor:
    if mode not in ("half", "interleave"):
        raise unmodelled(op, "rotary_mode", mode)
    if x.shape[-1] % 2:
        raise wrong(op, "rotary_mode", mode, f"pairs an odd head size, {x.shape[-1]}")
    wide = x.float()
    if mode == "half":
        first, second = wide.chunk(2, -1)
        quarter = torch.cat((-second, first), -1)
    else:
        quarter = torch.stack((-wide[..., 1::2], wide[..., ::2]), -1).flatten(-2)
    return (wide * cos.float() + quarter * sin.float()).to(x.dtype)


def _spreads(factor: Tensor, x: Tensor) -> bool:
    return (
        factor.dim() == x.dim()
        and factor.shape[-1] == x.shape[-1]
        and all(a in (1, b) for a, b in zip(factor.shape, x.shape, strict=True))
    )


def _but(dim: int, x: Tensor) -> list[int]:
    """The shape without one dimension."""
    return [size for at, size in enumerate(x.shape) if at != dim]
