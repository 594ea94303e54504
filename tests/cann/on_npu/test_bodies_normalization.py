"""RMS normalisation and SwiGLU against float64."""

from __future__ import annotations

import pytest
import torch
from body_cases import dtypes, few, near, random, seeds
from hypothesis import given
from hypothesis import strategies as st
from simulated.bodies import BODIES

rms_norm = BODIES["npu::npu_rms_norm"]
add_rms_norm = BODIES["npu::npu_add_rms_norm"]
swiglu = BODIES["npu::npu_swiglu"]

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@few
@given(shapes, st.integers(1, 2), dtypes, st.sampled_from([1e-6, 1e-2]), seeds)
def test_rms_norm(shape, over, dtype, epsilon, seed) -> None:
    shape = [*shape, 4, 16]
    x = random(seed, *shape, dtype=dtype)
    gamma = random(seed + 1, *shape[-over:], dtype=dtype)
    y, rstd = rms_norm(x, gamma, epsilon)
    axes = list(range(-over, 0))
    power = x.double().pow(2).sum(axes, keepdim=True) / gamma.numel()
    near(y, x.double() / (power + epsilon).sqrt() * gamma.double(), dtype)
    near(rstd, (power + epsilon).pow(-0.5), torch.float32)
    assert (y.dtype, rstd.dtype) == (dtype, torch.float32)


@few
@given(shapes, dtypes, seeds)
def test_add_rms_norm_norms_the_sum_that_it_returns(shape, dtype, seed) -> None:
    x1 = random(seed, *shape, 32, dtype=dtype)
    x2 = random(seed + 1, *shape, 32, dtype=dtype)
    gamma = random(seed + 2, 32, dtype=dtype)
    y, rstd, total = add_rms_norm(x1, x2, gamma)
    near(total, x1.double() + x2.double(), dtype)
    power = total.double().pow(2).mean(-1, keepdim=True)
    near(y, total.double() / (power + 1e-6).sqrt() * gamma.double(), dtype)
    near(rstd, (power + 1e-6).pow(-0.5), torch.float32)
    assert (y.dtype, total.dtype) == (dtype, dtype)


@few
@given(shapes, st.integers(-3, 2), dtypes, seeds)
def test_swiglu(shape, dim, dtype, seed) -> None:
    shape = (shape * 3)[:3]
    shape[dim] *= 2
    x = random(seed, *shape, dtype=dtype)
    half = shape[dim] // 2
    gate = x.double().narrow(dim, 0, half)
    up = x.double().narrow(dim, half, half)
    got = swiglu(x, dim)
    near(got, gate / (1 + (-gate).exp()) * up, dtype)
    assert got.dtype == dtype


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: rms_norm(x, torch.ones(3)), "npu_rms_norm: argument gamma=.*3"),
        (lambda x: rms_norm(x, torch.ones(4).half()), "argument gamma=.*float16"),
        (lambda x: add_rms_norm(x, x[:1], torch.ones(4)), "add_rms_norm: argument x2="),
        (lambda x: add_rms_norm(x, x, torch.ones(2)), "add_rms_norm: argument gamma="),
        (lambda x: swiglu(x[:, :3]), "npu_swiglu: argument dim=-1 has an odd size"),
        (lambda x: swiglu(x, 2), "npu_swiglu: argument dim=2 is no dimension"),
    ],
)
def test_shapes_that_do_not_fit(call, error) -> None:
    with pytest.raises(ValueError, match=error):
        call(torch.ones(2, 4))
