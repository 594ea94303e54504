"""The operators of npu_ops.py: arguments for each, and what it is to return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# A unit in the last place of values up to 4, and for float32 the order of its sums.
TOLERANCES = {torch.float32: 4e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
EPSILON = 1e-5
HEADS, KV_HEADS = 4, 2
POSITIONS = 32
LAYOUTS = ("contiguous", "sliced", "by_head", "transposed", "batched")


@dataclass(frozen=True)
class Form:
    """Sizes and layout of the arguments.

    layout: of rows of heads; "sliced" out of a wider row, as q and k are out of a
    projection; "by_head" the same, with a dimension for heads; "transposed"; "batched",
    two rows for each token.
    """

    dtype: torch.dtype = torch.float32
    tokens: int = 3
    head_size: int = 8
    rotary_dim: int = 8
    is_neox_style: bool = True
    layout: str = "contiguous"

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape).to(self.dtype).npu()

    def rows(self, *heads: int) -> list[Tensor]:
        """Tensors with that many heads in a row."""
        widths = [number * self.head_size for number in heads]
        if self.layout in ("sliced", "by_head"):
            parts = self.random(self.tokens, sum(widths)).split(widths, -1)
            if self.layout == "sliced":
                return list(parts)
            by_head = zip(parts, heads, strict=True)
            return [part.view(-1, number, self.head_size) for part, number in by_head]
        if self.layout == "transposed":
            return [self.random(width, self.tokens).T for width in widths]
        size = (2, self.tokens) if self.layout == "batched" else (self.tokens,)
        return [self.random(*size, width) for width in widths]

    def weight(self, rows: Tensor) -> Tensor:
        return self.random(rows.shape[-1])

    def positions(self) -> Tensor:
        size = (2, self.tokens) if self.layout == "batched" else (self.tokens,)
        return torch.randint(POSITIONS, size).npu()

    def cos_sin_cache(self) -> Tensor:
        exponents = torch.arange(0, self.rotary_dim, 2) / self.rotary_dim
        angles = torch.arange(POSITIONS)[:, None] * 100.0**-exponents
        return torch.cat((angles.cos(), angles.sin()), -1).to(self.dtype).npu()

    def rotary(self) -> tuple[int, int, bool]:
        return self.head_size, self.rotary_dim, self.is_neox_style


@dataclass(frozen=True)
class Case:
    """An operator: arguments on the NPU, and its outputs in float64 from the CPU's."""

    arguments: Callable[[Form], tuple[Any, ...]]
    expected: Callable[..., tuple[Tensor, ...]]


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, ...]:
    x = x.double()
    mean = (x * x).sum(-1, keepdim=True) / x.shape[-1]
    return (weight.double() * x / (mean + epsilon).sqrt(),)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, ...]:
    total = x.double() + residual.double()
    return *rms_norm(total, weight, epsilon), total


def silu_and_mul(x: Tensor) -> tuple[Tensor, ...]:
    gate, up = x.double().split(x.shape[-1] // 2, -1)
    return (gate / (1 + (-gate).exp()) * up,)


def rotary_query(  # noqa: PLR0917 (the operator's signature)
    positions: Tensor,
    query: Tensor,
    cache: Tensor,
    head_size: int,
    rotary_dim: int,
    is_neox_style: bool,
) -> tuple[Tensor, ...]:
    """Pairs as complex numbers, turned."""
    half = rotary_dim // 2
    row = cache.double()[positions.flatten()]
    turn = torch.complex(row[:, :half], row[:, half:])[:, None]
    heads = query.numel() // max(1, len(row) * head_size)
    out = query.double().reshape(len(row), heads, head_size).clone()
    first = slice(0, half) if is_neox_style else slice(0, rotary_dim, 2)
    second = slice(half, rotary_dim) if is_neox_style else slice(1, rotary_dim, 2)
    turned = torch.complex(out[..., first], out[..., second]) * turn
    out[..., first], out[..., second] = turned.real, turned.imag
    return (out.reshape(query.shape),)


def rotary(
    positions: Tensor, query: Tensor, key: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return (
        *rotary_query(positions, query, *rest),
        *rotary_query(positions, key, *rest),
    )


def _norm(form: Form, number: int) -> tuple[Any, ...]:
    rows = form.rows(*[HEADS] * number)
    return *rows, form.weight(rows[0]), EPSILON


def _rotary(form: Form, *heads: int) -> tuple[Any, ...]:
    return form.positions(), *form.rows(*heads), form.cos_sin_cache(), *form.rotary()


CASES = {
    "npu_rms_norm": Case(lambda form: _norm(form, 1), rms_norm),
    "npu_add_rms_norm": Case(lambda form: _norm(form, 2), add_rms_norm),
    "npu_silu_and_mul": Case(lambda form: (form.rows(HEADS)[0],), silu_and_mul),
    "npu_rotary_embedding": Case(lambda form: _rotary(form, HEADS, KV_HEADS), rotary),
    "npu_rotary_embedding_query": Case(lambda form: _rotary(form, HEADS), rotary_query),
}


def outputs(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def on_cpu(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.cpu() if isinstance(x, Tensor) else x for x in arguments)


def strides(x: Tensor) -> list[int]:
    """Those that say where an element is: of the dimensions with more than one."""
    pairs = zip(x.shape, x.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1]


def storages(values: tuple[Any, ...]) -> list[int]:
    """What tells them apart even where they are empty."""
    return [x.untyped_storage()._cdata for x in values if isinstance(x, Tensor)]
