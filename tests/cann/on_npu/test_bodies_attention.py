"""Fused-infer and paged attention against dense attention by positions, in float64."""

# ruff: noqa: PLR0917 (hypothesis gives them by position)
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from body_cases import dtypes, few, near, paged, random, seeds
from hypothesis import given
from hypothesis import strategies as st
from simulated.bodies import BODIES
from torch import Tensor

V1 = "npu::npu_fused_infer_attention_score"
V2 = "npu::npu_fused_infer_attention_score_v2"
WORKSPACES = {
    V1: "npu::_npu_fused_infer_attention_score_get_max_workspace",
    V2: "npu::_npu_fused_infer_attention_score_v2_get_max_workspace",
}
# What the second version calls otherwise.
NAMES_OF_V2 = {
    "actual_seq_lengths": "actual_seq_qlen",
    "actual_seq_lengths_kv": "actual_seq_kvlen",
    "num_heads": "num_query_heads",
    "scale": "softmax_scale",
    "softmax_lse_flag": "return_softmax_lse",
}
BLOCK, SIZE, OUT_SIZE = 4, 8, 12
LEFT_UP, RIGHT_DOWN, BAND = 2, 3, 4

# Lengths of 1, at a block's end and on both sides of it.
kv_lengths = st.sampled_from([1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 11])
lengths = st.lists(st.tuples(st.integers(1, 5), kv_lengths), min_size=1, max_size=4)
heads = st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 1)])


@cache
def triangle() -> Tensor:
    return torch.ones(2048, 2048, dtype=torch.bool).triu(1)


@dataclass(frozen=True)
class Sequences:
    """Query, keys and values of each sequence: (tokens, heads, size)."""

    query: list[Tensor]
    key: list[Tensor]
    value: list[Tensor]

    @classmethod
    def drawn(cls, shape, of_heads, dtype, seed, out_size=OUT_SIZE) -> Sequences:
        n, kv = of_heads
        parts = ((0, n, SIZE), (1, kv, SIZE), (1, kv, out_size))
        return cls(
            *[
                [
                    random(seed + 7 * at + part, one[which], h, size, dtype=dtype)
                    for at, one in enumerate(shape)
                ]
                for part, (which, h, size) in enumerate(parts)
            ]
        )


def dense(query, key, value, scale, sees) -> tuple[Tensor, Tensor]:
    """Attention row by row and head by head; sees(i, j): row i reads key j."""
    rows, n, _ = query.shape
    query, key, value = query.double(), key.double(), value.double()
    out = torch.zeros(rows, n, value.shape[2], dtype=torch.float64)
    lse = torch.full((rows, n, 1), -math.inf, dtype=torch.float64)
    for i in range(rows):
        seen = [j for j in range(len(key)) if sees(i, j)]
        for h in range(n if seen else 0):
            of = h * key.shape[1] // n
            terms = [math.exp(float(query[i, h] @ key[j, of]) * scale) for j in seen]
            weighted = [t * value[j, of] for t, j in zip(terms, seen, strict=True)]
            out[i, h] = sum(weighted) / sum(terms)
            lse[i, h] = math.log(sum(terms))
    return out, lse


def everything(*_: int) -> bool:
    return True


def rule(mode, rows, keys, pre, after):
    """Who sees whom, the last row at the last key but for mode 2."""
    at = 0 if mode == LEFT_UP else keys - rows
    if mode == BAND:
        return lambda i, j: at + i - pre <= j <= at + i + after
    if mode in (LEFT_UP, RIGHT_DOWN):
        return lambda i, j: j <= at + i
    return everything


def packed(rows: list[Tensor], layout: str) -> Tensor:
    """The layout's tensor; what belongs to no sequence is NaN."""
    if layout == "TND":
        return torch.cat(rows)
    longest = max(len(of_one) for of_one in rows)
    shape = (len(rows), longest, *rows[0].shape[1:])
    tensor = torch.full(shape, torch.nan, dtype=rows[0].dtype)
    for at, of_one in enumerate(rows):
        tensor[at, : len(of_one)] = of_one
    if layout == "BSH":
        return tensor.flatten(2)
    return tensor.transpose(1, 2).contiguous() if layout == "BNSD" else tensor


def sums(rows: list[int]) -> list[int]:
    return [sum(rows[: at + 1]) for at in range(len(rows))]


def arguments(
    sequences: Sequences, layout="TND", *, by_block=None, seed=0, **more
) -> tuple[list[Tensor], dict]:
    """What to call version 1 with; by_block: "flat" or "by head", a paged cache."""
    q_lens = [len(of_one) for of_one in sequences.query]
    kv_lens = [len(of_one) for of_one in sequences.key]
    n, kv = sequences.query[0].shape[1], sequences.key[0].shape[1]
    keywords = {
        "actual_seq_lengths": sums(q_lens) if layout == "TND" else q_lens,
        "actual_seq_lengths_kv": kv_lens,
        "num_heads": n,
        "num_key_value_heads": kv if kv != n else 0,
        "scale": 0.5,
        "input_layout": layout,
        **more,
    }
    if by_block:
        (key, table), (value, _) = (
            paged(rows, BLOCK, seed) for rows in (sequences.key, sequences.value)
        )
        keywords |= {"block_table": table, "block_size": BLOCK}
        if by_block == "flat":
            key, value = key.flatten(2), value.flatten(2)
        else:
            key, value = key.transpose(1, 2), value.transpose(1, 2)
    else:
        key, value = (packed(x, layout) for x in (sequences.key, sequences.value))
        if layout == "TND":
            keywords["actual_seq_lengths_kv"] = sums(kv_lens)
    return [packed(sequences.query, layout), key, value], keywords


def check(got, sequences, layout, sees_of, dtype) -> None:
    """Attention and log-sum-exp (where it is there) against the dense ones."""
    attention, lse = got
    assert attention.dtype == dtype
    start = 0
    for at, query in enumerate(sequences.query):
        rows, keys = len(query), len(sequences.key[at])
        wanted, wanted_lse = dense(
            query, sequences.key[at], sequences.value[at], 0.5, sees_of(at, rows, keys)
        )
        if layout == "TND":
            mine = attention[start : start + rows]
        elif layout == "BNSD":
            mine = attention[at, :, :rows].transpose(0, 1)
            assert attention[at, :, rows:].isnan().all()
        else:
            mine = attention[at, :rows].reshape(wanted.shape)
            assert attention[at, rows:].isnan().all()
        near(mine, wanted, dtype)
        if lse.numel():
            by_row = lse[start:] if layout == "TND" else lse[at].transpose(0, 1)
            near(by_row[:rows], wanted_lse, torch.float32)
        start += rows


def call(version, tensors, keywords, form=""):
    if version == V2:
        keywords = {NAMES_OF_V2.get(k, k): v for k, v in keywords.items()}
    return BODIES[WORKSPACES[version] if form == "workspace" else version + form](
        *tensors, **keywords
    )


versions = st.sampled_from([V1, V2])
modes = st.sampled_from([0, LEFT_UP, RIGHT_DOWN, BAND])
bands = st.tuples(st.integers(0, 6), st.integers(0, 3))


@few
@given(
    versions,
    lengths,
    heads,
    modes,
    bands,
    st.sampled_from([None, "flat", "by head"]),
    dtypes,
    seeds,
)
def test_tnd(version, shape, of_heads, mode, band, by_block, dtype, seed) -> None:
    sequences = Sequences.drawn(shape, of_heads, dtype, seed)
    mask = triangle() if mode else None
    options = {"sparse_mode": mode, "atten_mask": mask}
    if mode == BAND:
        options |= {"pre_tokens": band[0], "next_tokens": band[1]}
    tensors, keywords = arguments(sequences, by_block=by_block, seed=seed, **options)
    got = call(version, tensors, keywords)
    check(got, sequences, "TND", lambda _, r, k: rule(mode, r, k, *band), dtype)
    assert got[1].shape == (0,)


@few
@given(
    versions,
    lengths,
    heads,
    st.sampled_from(["BSND", "BSH", "BNSD"]),
    modes,
    bands,
    st.booleans(),
    dtypes,
    seeds,
)
def test_batch_layouts(
    version, shape, of_heads, layout, mode, band, by_block, dtype, seed
) -> None:
    sequences = Sequences.drawn(shape, of_heads, dtype, seed)
    longest = max(rows for rows, _ in shape)
    options = {"sparse_mode": mode, "atten_mask": triangle() if mode else None}
    if mode == BAND:
        options |= {"pre_tokens": band[0], "next_tokens": band[1]}
    tensors, keywords = arguments(
        sequences, layout, by_block="flat" if by_block else None, seed=seed, **options
    )
    got = call(version, tensors, keywords)
    # One query token a sequence makes the modes ineffective.
    acting = mode if longest > 1 else 0
    check(got, sequences, layout, lambda _, r, k: rule(acting, r, k, *band), dtype)


@few
@given(
    lengths,
    heads,
    st.booleans(),
    st.sampled_from([0, 1]),
    bands,
    st.integers(2, 4),
    dtypes,
    seeds,
)
def test_a_mask_of_ones_own(
    shape, of_heads, shared, mode, band, dims, dtype, seed
) -> None:
    shape = [(rows + 1, keys) for rows, keys in shape]
    sequences = Sequences.drawn(shape, of_heads, dtype, seed)
    batch = 1 if shared or dims == 2 else len(shape)
    hidden = random(seed, batch, 6, 16, dtype=torch.float32) > 0.5
    mask = {2: hidden[0], 3: hidden, 4: hidden[:, None]}[dims]
    tensors, keywords = arguments(
        sequences,
        "BSND",
        atten_mask=mask,
        sparse_mode=mode,
        inner_precise=2,
        pre_tokens=band[0],
        next_tokens=band[1],
    )

    def sees_of(at, rows, keys):
        mine = hidden[at if batch > 1 else 0]
        near_by = lambda i, j: mode == 1 or i - band[0] <= j <= i + band[1]  # noqa: E731
        return lambda i, j: not mine[i, j] and near_by(i, j)

    check(call(V1, tensors, keywords), sequences, "BSND", sees_of, dtype)


@few
@given(st.lists(kv_lengths, min_size=1, max_size=4), heads, st.integers(2, 4), seeds)
def test_a_mask_for_single_tokens(keys, of_heads, dims, seed) -> None:
    sequences = Sequences.drawn([(1, k) for k in keys], of_heads, torch.float32, seed)
    hidden = random(seed, len(keys), 16, dtype=torch.float32) > 0.5
    hidden[:, 0] = False
    mask = {2: hidden, 3: hidden[:, None], 4: hidden[:, None, None]}[dims]
    # The band has no effect on them.
    tensors, keywords = arguments(sequences, "BSH", atten_mask=mask, pre_tokens=0)
    got = call(V1, tensors, keywords)
    sees_of = lambda at, *_: lambda _, j: not hidden[at, j]  # noqa: E731
    check(got, sequences, "BSH", sees_of, torch.float32)


@few
@given(
    versions,
    lengths,
    heads,
    st.sampled_from(["TND", "BSND", "BSH", "BNSD"]),
    st.booleans(),
    st.booleans(),
    dtypes,
    seeds,
)
def test_out_form_gives_the_same_bits(
    version, shape, of_heads, layout, lse, with_workspace, dtype, seed
) -> None:
    shape = [(rows, max(rows, keys)) for rows, keys in shape]
    sequences = Sequences.drawn(shape, of_heads, dtype, seed)
    tensors, keywords = arguments(
        sequences,
        layout,
        by_block="flat",
        seed=seed,
        sparse_mode=RIGHT_DOWN,
        atten_mask=triangle(),
        softmax_lse_flag=lse,
    )
    plain = call(version, tensors, keywords)
    sees_of = lambda _, r, k: rule(RIGHT_DOWN, r, k, 0, 0)  # noqa: E731
    check(plain, sequences, layout, sees_of, dtype)
    out = [torch.full_like(plain[0], 7), torch.full_like(plain[1], 7)]
    if not lse:
        out[1] = torch.full((1,), 7.0)
    workspace = call(version, tensors, keywords, "workspace")
    more = {"out": out, "workspace": workspace if with_workspace else None}
    returned = call(version, tensors, keywords | more, ".out")
    assert returned[0] is out[0]
    assert returned[1] is out[1]
    wanted = (plain[0], plain[1] if lse else torch.full((1,), 7.0))
    for mine, other in zip(out, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True)


@few
@given(
    st.lists(kv_lengths, min_size=1, max_size=5), heads, st.booleans(), dtypes, seeds
)
def test_paged_attention(keys, of_heads, with_workspace, dtype, seed) -> None:
    shape = [(1, k) for k in keys]
    sequences = Sequences.drawn(shape, of_heads, dtype, seed, out_size=SIZE)
    args, out = paged_arguments(sequences, seed)
    workspace = BODIES["atb::_npu_paged_attention_get_workspace"](*args)
    given_one = {"workspace": workspace} if with_workspace else {}
    assert BODIES["atb::_npu_paged_attention"](*args, **given_one) is None
    got = (out, torch.empty(0))
    check(got, sequences, "TND", lambda *_: everything, dtype)


def paged_arguments(sequences: Sequences, seed: int = 0) -> tuple[list, Tensor]:
    query = torch.cat(sequences.query)
    (key, table), (value, _) = (
        paged(rows, BLOCK, seed) for rows in (sequences.key, sequences.value)
    )
    lens = torch.tensor([len(rows) for rows in sequences.key], dtype=torch.int32)
    out = torch.full_like(query, 7)
    kv, n = key.shape[2], query.shape[1]
    return [query, key, value, kv, n, 0.5, table, lens, out], out
