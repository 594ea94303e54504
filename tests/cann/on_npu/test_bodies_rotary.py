"""Rotary embedding against multiplication by unit complex numbers."""

# ruff: noqa: PLR0917 (hypothesis gives them by position)
from __future__ import annotations

import pytest
import torch
from body_cases import dtypes, few, near, random, seeds
from hypothesis import given
from hypothesis import strategies as st
from simulated.bodies import BODIES
from torch import Tensor

rotary_mul = BODIES["npu::npu_rotary_mul"]
apply_rotary = BODIES["npu::npu_apply_rotary_pos_emb"]
rotary_embedding = BODIES["atb::_npu_rotary_embedding"]

modes = st.sampled_from(["half", "interleave"])
small = st.integers(1, 4)


def turned(x: Tensor, angles: Tensor, mode: str) -> Tensor:
    """x with its pairs as complex numbers, each turned by its angle."""
    x = x.double()
    half = x.shape[-1] // 2
    if mode == "half":
        pairs = torch.complex(x[..., :half], x[..., half:])
    else:
        pairs = torch.complex(x[..., 0::2], x[..., 1::2])
    pairs = pairs * torch.exp(1j * angles.double())
    parts = (pairs.real, pairs.imag)
    if mode == "half":
        return torch.cat(parts, -1)
    return torch.stack(parts, -1).reshape(x.shape)


def spread(values: Tensor, mode: str) -> Tensor:
    """A value per pair as one per element."""
    if mode == "half":
        return torch.cat((values, values), -1)
    return torch.stack((values, values), -1).flatten(-2)


def rounded_angles(shape: list[int], seed: int, dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Cosines and sines of the dtype that are those of an angle as near as they go."""
    angles = random(seed, *shape, dtype=torch.float64) * 3
    return angles, angles.cos().to(dtype), angles.sin().to(dtype)


@few
@given(small, small, small, st.sampled_from([2, 8, 64]), modes, dtypes, seeds)
def test_rotary_mul(b, s, n, d, mode, dtype, seed) -> None:
    x = random(seed, b, s, n, d, dtype=dtype)
    angles, cos, sin = rounded_angles([1, s, 1, d // 2], seed + 1, dtype)
    got = rotary_mul(x, spread(cos, mode), spread(sin, mode), mode)
    # The rounding of cosine and sine weighs with the element, of order 4 at most.
    near(got / 4, turned(x, angles, mode) / 4, dtype)
    assert got.dtype == dtype


@few
@given(
    st.sampled_from(["BSND", "SBND", "BNSD", "TND"]), small, small, modes, dtypes, seeds
)
def test_apply_rotary_pos_emb_writes_in_place(layout, n, kv, mode, dtype, seed) -> None:
    sizes = {"B": 2, "S": 3, "T": 5, "D": 16}
    query, key = (
        random(seed + heads, *[sizes.get(a, heads) for a in layout], dtype=dtype)
        for heads in (n, kv)
    )
    shape = [sizes.get(axis, 1) for axis in layout]
    shape[-1] //= 2
    angles, cos, sin = rounded_angles(shape, seed + 9, dtype)
    wanted = [turned(x, angles, mode) for x in (query, key)]
    cos, sin = spread(cos, mode), spread(sin, mode)
    got = apply_rotary(query, key, cos, sin, layout, mode)
    assert got[0] is query
    assert got[1] is key
    for x, turned_x in zip(got, wanted, strict=True):
        near(x / 4, turned_x / 4, dtype)


@few
@given(st.integers(0, 6), small, small, st.booleans(), st.booleans(), dtypes, seeds)
def test_rotary_embedding(tokens, n, kv, neox, flat, dtype, seed) -> None:
    angles, cos, sin = rounded_angles([11, 4], seed, dtype)
    positions = torch.randint(
        11, (tokens,), generator=torch.Generator().manual_seed(seed)
    )
    query = random(seed + 1, tokens, n, 8, dtype=dtype)
    key = random(seed + 2, tokens, kv, 8, dtype=dtype)
    mode = "half" if neox else "interleave"
    wanted = [turned(x, angles[positions][:, None], mode) for x in (query, key)]
    given_form = [
        x.reshape(tokens, x.shape[1] * 8) if flat else x for x in (query, key)
    ]
    cache = torch.cat((cos, sin), -1)
    assert rotary_embedding(positions, *given_form, 8, cache, neox) is None
    for x, turned_x in zip(given_form, wanted, strict=True):
        near(x.reshape(turned_x.shape) / 4, turned_x / 4, dtype)


X = torch.ones(1, 2, 3, 4)
ROW = torch.ones(1, 2, 1, 4)
POSITIONS = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: rotary_mul(X, ROW, ROW, "quarter"), NotImplementedError, "'quarter'"),
        (lambda: rotary_mul(X, ROW, ROW, "half", X), NotImplementedError, "rotate="),
        (lambda: rotary_mul(X[0], ROW, ROW), ValueError, "argument input="),
        (lambda: rotary_mul(X, ROW[..., :2], ROW), ValueError, "argument r1="),
        (lambda: rotary_mul(X, ROW, X[:, :1, :2]), ValueError, "argument r2="),
        (
            lambda: rotary_mul(X[..., :3], ROW[..., :3], ROW[..., :3]),
            ValueError,
            "odd head size, 3",
        ),
        (lambda: apply_rotary(X, X, ROW, ROW, "BSH"), NotImplementedError, "'BSH'"),
        (lambda: apply_rotary(X, X, ROW, ROW, "TND"), ValueError, "argument query="),
        (
            lambda: apply_rotary(X, X, ROW[..., :2], ROW),
            NotImplementedError,
            "argument cos=",
        ),
        (lambda: apply_rotary(X, X, ROW, X), ValueError, "argument sin="),
        (lambda: apply_rotary(X, X[:, :1], ROW, ROW), ValueError, "argument key="),
        (lambda: apply_rotary(X, X.half(), ROW, ROW), ValueError, "argument key="),
        (
            lambda: rotary_embedding(POSITIONS, X[0], X[0], 4, ROW[0, 0], True),
            ValueError,
            r"argument positions=\[0, 1\] leaves the cache of 1",
        ),
        (
            lambda: rotary_embedding(POSITIONS, X[0], X[0], 4, ROW[0, :, 0, :2], True),
            NotImplementedError,
            "argument cos_sin_cache=",
        ),
        (
            lambda: rotary_embedding(POSITIONS, X[0, :1], X[0], 4, ROW[0, :, 0], True),
            ValueError,
            "argument query=",
        ),
    ],
)
def test_refusals(call, error, match) -> None:
    with pytest.raises(error, match=match):
        call()
