"""What a call of fused-infer attention asks for, whichever its version and form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .attention_math import attend, blocks_of, check_workspace, workspace_bytes
from .registry import unmodelled, wrong

LAYOUTS = {"BSH": 3, "BSND": 4, "BNSD": 4, "TND": 3}
# Modes 2, 3 and 4 take the triangle of this size in the place of a mask of their own.
TRIANGLE = 2048
LEFT_UP, RIGHT_DOWN, BAND = 2, 3, 4
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@cache
def _triangle() -> Tensor:
    return torch.ones(TRIANGLE, TRIANGLE, dtype=torch.bool).triu(1)


@dataclass(frozen=True)
class AttentionCall:
    """The modelled arguments; names gives those that the versions name differently."""

    op: str
    names: Mapping[str, str]
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    query_lengths: Sequence[int] | None
    kv_lengths: Sequence[int] | None
    block_table: Tensor | None
    heads: int
    kv_heads: int
    scale: float
    pre_tokens: int
    next_tokens: int
    layout: str
    sparse_mode: int
    inner_precise: int
    block_size: int
    wants_lse: bool

    def run(self) -> tuple[Tensor, Tensor]:
        """Attention in query's layout and dtype, and the log-sum-exp, float32.

        The second is (T, N, 1) for TND, else (B, N, S, 1); (0,) where not asked for.
        Rows of a batch layout beyond the length of their sequence are NaN: nothing is
        documented of them.
        """
        self._check_shapes()
        attention = torch.full(self._out_shape(), torch.nan, dtype=self.query.dtype)
        lse = torch.full(self._lse_shape(), torch.nan)
        for sequence, (q_from, q_to, kv_from, kv_to) in enumerate(self._spans()):
            query = self._rows(self.query, self.heads, sequence, q_from, q_to)
            key, value = self._keys(sequence, kv_from, kv_to)
            visible = self._visible(sequence, q_to - q_from, len(key))
            self._check_blind(visible, len(key), len(query))
            result, sums = attend(query, key, value, self.scale, visible)
            self._rows(attention, self.heads, sequence, q_from, q_to).copy_(result)
            if self.layout == "TND":
                lse[q_from:q_to] = sums
            else:
                lse[sequence, :, q_from:q_to] = sums.transpose(0, 1)
        return attention, lse if self.wants_lse else torch.empty(0)

    def run_into(
        self, workspace: Tensor | None, out: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Write what run() gives into out and return it.

        out[1] is left alone, whatever its shape, where no log-sum-exp is asked for.
        Raises ValueError for tensors that do not fit and a workspace that is too small.
        """
        self._check_shapes()
        check_workspace(self.op, workspace, self.workspace_bytes())
        if len(out) != 2:
            raise wrong(self.op, "out", list(out), "is not two tensors")
        wanted = [(self._out_shape(), self.query.dtype)]
        if self.wants_lse:
            wanted.append((self._lse_shape(), torch.float32))
        for given, (shape, dtype) in zip(out, wanted, strict=False):
            if tuple(given.shape) != shape or given.dtype != dtype:
                raise wrong(self.op, "out", given, f"is not {dtype} {shape}")
        attention, lse = self.run()
        out[0].copy_(attention)
        if self.wants_lse:
            out[1].copy_(lse)
        return out[0], out[1]

    def workspace_bytes(self) -> int:
        """The simulated size: see attention_math.workspace_bytes."""
        self._check_shapes()
        tokens = self.query[..., 0].numel() // self._in_head_axis()
        if self.block_table is not None:
            capacity = self.block_table.shape[1] * self.block_size
        else:
            capacity = self.key.shape[{"BNSD": 2, "TND": 0}.get(self.layout, 1)]
        return workspace_bytes(self.heads, tokens, self._value_size(), capacity)

    def workspace(self) -> Tensor:
        """A workspace of that many bytes: uint8, (bytes,)."""
        return torch.empty(self.workspace_bytes(), dtype=torch.uint8)

    @property
    def _kv_heads(self) -> int:
        return self.kv_heads or self.heads

    def _in_head_axis(self) -> int:
        return 1 if self.layout == "BSH" else self.heads

    def _wrong(self, argument: str, value: Any, rule: str) -> ValueError:
        return wrong(self.op, self.names.get(argument, argument), value, rule)

    def _check_shapes(self) -> None:
        if self.layout not in LAYOUTS:
            raise unmodelled(self.op, "input_layout", self.layout)
        if not 0 <= self.sparse_mode <= BAND:
            raise unmodelled(self.op, "sparse_mode", self.sparse_mode)
        if not 0 <= self.inner_precise <= 3:
            raise self._wrong("inner_precise", self.inner_precise, "is not 0 to 3")
        if self.heads < 1:
            raise self._wrong("heads", self.heads, "is not above 0")
        if self.heads % self._kv_heads:
            rule = f"does not divide the {self.heads} heads"
            raise self._wrong("num_key_value_heads", self.kv_heads, rule)
        self._check_query()
        self._check_keys()

    def _check_query(self) -> None:
        if self.query.dtype not in FLOATS:
            raise unmodelled(self.op, "query", self.query)
        if self.query.dim() != LAYOUTS[self.layout]:
            raise self._wrong("query", self.query, f"is not laid out as {self.layout}")
        if self.layout == "BSH":
            fits = self.query.shape[2] % self.heads == 0
        else:
            fits = self.query.shape[1 if self.layout != "BSND" else 2] == self.heads
        if not fits:
            raise self._wrong("query", self.query, f"has not {self.heads} heads")

    def _check_keys(self) -> None:
        heads = self._kv_heads
        for name, kv in (("key", self.key), ("value", self.value)):
            if kv.dtype != self.query.dtype:
                raise unmodelled(self.op, name, kv)
            if self.block_table is not None:
                self._check_paged(name, kv)
                continue
            if kv.dim() != self.query.dim():
                raise self._wrong(name, kv, f"is not laid out as {self.layout}")
            by_head = {"BSND": 2, "BNSD": 1, "TND": 1}.get(self.layout)
            if kv.shape[by_head] != heads if by_head else kv.shape[2] % heads:
                raise self._wrong(name, kv, f"has not {heads} heads")
            if self.layout != "TND" and len(kv) != len(self.query):
                raise self._wrong(name, kv, f"has not {len(self.query)} sequences")
        if self.key.shape[:-1] != self.value.shape[:-1]:
            raise self._wrong("value", self.value, f"is not as key {self.key.shape}")
        if self._head_size(self.key) != self._head_size(self.query, self.heads):
            rule = f"has not the head size of query {tuple(self.query.shape)}"
            raise self._wrong("key", self.key, rule)

    def _check_paged(self, name: str, kv: Tensor) -> None:
        table, heads = self.block_table, self._kv_heads
        if table is None or table.dim() != 2 or table.dtype != torch.int32:
            raise self._wrong("block_table", table, "is not int32 of 2 dimensions")
        if kv.dim() == 5:
            raise unmodelled(self.op, name, kv)
        if self.block_size < 1:
            raise self._wrong("block_size", self.block_size, "is not above 0")
        size = self.block_size
        if kv.dim() == 3:
            fits = kv.shape[1] == size and kv.shape[2] % heads == 0
        else:
            fits = kv.dim() == 4 and tuple(kv.shape[1:3]) == (heads, size)
            fits = fits and self.layout in ("BNSD", "TND")
        if not fits:
            rule = (
                f"is not (blocks, {size}, {heads} heads * size) nor, for BNSD and TND, "
                f"(blocks, {heads} heads, {size}, size)"
            )
            raise self._wrong(name, kv, rule)

    def _head_size(self, kv: Tensor, heads: int | None = None) -> int:
        """The size of a head of key, value or (with its number of heads) query."""
        paged = self.block_table is not None and heads is None
        if kv.dim() == 3 and (paged or self.layout == "BSH"):
            return kv.shape[2] // (heads or self._kv_heads)
        return kv.shape[-1]

    def _value_size(self) -> int:
        return self._head_size(self.value)

    def _out_shape(self) -> tuple[int, ...]:
        size = self._value_size() * (self.heads if self.layout == "BSH" else 1)
        return (*self.query.shape[:-1], size)

    def _lse_shape(self) -> tuple[int, ...]:
        shape = self.query.shape
        if self.layout == "TND":
            return (shape[0], shape[1], 1)
        return (shape[0], self.heads, shape[2 if self.layout == "BNSD" else 1], 1)

    def _spans(self) -> Iterator[tuple[int, int, int, int]]:
        """Of each sequence: from and to, in query and in the keys that are its own."""
        if self.layout == "TND":
            return self._spans_of_tokens()
        return self._spans_of_batch()

    def _spans_of_tokens(self) -> Iterator[tuple[int, int, int, int]]:
        ends = self._given("query_lengths", self.query_lengths)
        batch = len(ends)
        self._check_cumulative("query_lengths", ends, len(self.query))
        kv_ends = self._given("kv_lengths", self.kv_lengths)
        if len(kv_ends) != batch:
            raise self._wrong("kv_lengths", kv_ends, f"is not of {batch} sequences")
        starts = [0, *ends][:batch]
        if self.block_table is not None:
            self._check_table(batch, kv_ends)
            return zip(starts, ends, [0] * batch, kv_ends, strict=True)
        self._check_cumulative("kv_lengths", kv_ends, len(self.key))
        return zip(starts, ends, [0, *kv_ends][:batch], kv_ends, strict=True)

    def _spans_of_batch(self) -> Iterator[tuple[int, int, int, int]]:
        batch, axis = len(self.query), 2 if self.layout == "BNSD" else 1
        ends = self._per_sequence(
            "query_lengths", self.query_lengths, self.query.shape[axis]
        )
        if self.block_table is None:
            limit = self.key.shape[axis]
            kv_ends = self._per_sequence("kv_lengths", self.kv_lengths, limit)
        else:
            self._given("kv_lengths", self.kv_lengths)
            limit = self.block_table.shape[1] * self.block_size
            kv_ends = self._per_sequence("kv_lengths", self.kv_lengths, limit)
            self._check_table(batch, kv_ends)
        zeros = [0] * batch
        return zip(zeros, ends, zeros, kv_ends, strict=True)

    def _given(self, name: str, lengths: Sequence[int] | None) -> list[int]:
        if lengths is None:
            raise self._wrong(name, None, "has to be given here")
        return list(lengths)

    def _per_sequence(
        self, name: str, lengths: Sequence[int] | None, limit: int
    ) -> list[int]:
        """A length each: None is all, one is for every sequence, surplus is cut off."""
        batch = len(self.query)
        if lengths is None:
            return [limit] * batch
        if len(lengths) != 1 and len(lengths) < batch:
            raise self._wrong(name, list(lengths), f"is not of {batch} sequences")
        each = list(lengths) * batch if len(lengths) == 1 else list(lengths)[:batch]
        if any(not 0 <= length <= limit for length in each):
            raise self._wrong(name, list(lengths), f"leaves 0 to {limit}")
        return each

    def _check_cumulative(self, name: str, ends: list[int], tokens: int) -> None:
        grows = all(a <= b for a, b in zip([0, *ends], ends, strict=False))
        if not grows or [0, *ends][-1] != tokens:
            rule = f"does not add up, never falling, to the {tokens} tokens"
            raise self._wrong(name, ends, rule)

    def _check_table(self, batch: int, lengths: list[int]) -> None:
        table = self.block_table
        if table is not None and len(table) != batch:
            raise self._wrong("block_table", table, f"is not of {batch} sequences")
        if any(length < 0 for length in lengths):
            raise self._wrong("kv_lengths", lengths, "has a length below 0")

    def _rows(
        self, tensor: Tensor, heads: int, sequence: int, start: int, end: int
    ) -> Tensor:
        """A view of the tokens start to end of a sequence: (tokens, heads, size)."""
        if self.layout == "TND":
            return tensor[start:end]
        if self.layout == "BNSD":
            return tensor[sequence, :, start:end].transpose(0, 1)
        rows = tensor[sequence, start:end]
        return rows.unflatten(-1, (heads, -1)) if self.layout == "BSH" else rows

    def _keys(self, sequence: int, start: int, end: int) -> tuple[Tensor, Tensor]:
        """The keys and values of a sequence: (tokens, heads, size)."""
        heads, table = self._kv_heads, self.block_table
        if table is None:
            key = self._rows(self.key, heads, sequence, start, end)
            return key, self._rows(self.value, heads, sequence, start, end)
        held = blocks_of(
            self.op, table, sequence, end, size=self.block_size, blocks=len(self.key)
        )
        key, value = (
            kv[held].unflatten(-1, (heads, -1))
            if kv.dim() == 3
            else kv[held].transpose(1, 2)
            for kv in (self.key, self.value)
        )
        return key.flatten(0, 1)[:end], value.flatten(0, 1)[:end]

    def _visible(self, sequence: int, rows: int, keys: int) -> Tensor | None:
        """Which of `keys` each of `rows` may see: bool, None for all of them."""
        single = self.layout != "TND" and self._lse_shape()[2] == 1
        row, key = torch.arange(rows)[:, None], torch.arange(keys)
        if self.sparse_mode >= LEFT_UP:
            self._check_triangle(optional=single)
            # Documented: one query token a sequence makes the mode ineffective.
            if single:
                return None
            shift = 0 if self.sparse_mode == LEFT_UP else keys - rows
            if self.sparse_mode != BAND:
                return key <= row + shift
            first, last = shift - self.pre_tokens, shift + self.next_tokens
            return (row + first <= key) & (key <= row + last)
        if self.mask is None:
            if self.sparse_mode == 1:
                raise self._wrong(
                    "atten_mask", None, "has to be given in sparse_mode 1"
                )
            return None
        visible = ~self._mask_of(self.mask, sequence, single)[:rows, :keys].bool()
        if visible.shape != (rows, keys):
            raise self._wrong(
                "atten_mask", self.mask, f"is smaller than {rows}, {keys}"
            )
        if self.sparse_mode == 1 or single:
            return visible
        return (
            visible & (row - self.pre_tokens <= key) & (key <= row + self.next_tokens)
        )

    def _check_triangle(self, optional: bool) -> None:
        mask = self.mask
        if mask is None and optional:
            return
        shape = () if mask is None else tuple(mask.shape)
        if mask is None or shape[-2:] != (TRIANGLE,) * 2 or mask.numel() != TRIANGLE**2:
            rule = (
                f"is not the {TRIANGLE} * {TRIANGLE} of sparse_mode {self.sparse_mode}"
            )
            raise self._wrong("atten_mask", mask, rule)
        # Eight at once: it is most of the time of a call.
        hidden = mask.reshape(TRIANGLE, TRIANGLE).bool().contiguous()
        if not torch.equal(hidden.view(torch.int64), _triangle().view(torch.int64)):
            rule = f"hides other than what is above the diagonal, {self.sparse_mode=}"
            raise self._wrong("atten_mask", mask, rule)

    def _mask_of(self, mask: Tensor, sequence: int, single: bool) -> Tensor:
        if self.layout == "TND":
            raise unmodelled(self.op, "atten_mask", mask)
        batch = len(self.query)
        if mask.dim() == 4 and mask.shape[1] == 1:
            mask = mask[:, 0]
        if mask.dim() == 2:
            mask = mask[:, None] if single else mask[None]
        if mask.dim() != 3 or len(mask) not in (1, batch):
            raise self._wrong("atten_mask", self.mask, f"is not of {batch} sequences")
        return mask[sequence if len(mask) > 1 else 0]

    def _check_blind(self, visible: Tensor | None, keys: int, rows: int) -> None:
        """Refuse rows that see nothing where the operator's answer is open."""
        blind = not keys or (visible is not None and not visible.any(-1).all())
        if not blind or not rows:
            return
        if self.wants_lse:
            raise unmodelled(self.op, self.names["wants_lse"], True)
        # Modes 2 to 4 and no keys at all: the operator sees it and gives zeros.
        if keys and self.sparse_mode < LEFT_UP and self.inner_precise < 2:
            raise unmodelled(self.op, "inner_precise", self.inner_precise)
