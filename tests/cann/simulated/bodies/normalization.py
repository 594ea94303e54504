"""RMS normalisation, alone and after a residual addition."""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import body, wrong


@body("npu::npu_rms_norm")
def npu_rms_norm(
    input: Tensor, gamma: Tensor, epsilon: float = 1e-06
) -> tuple[Tensor, Tensor]:
    """Divide by the root mean square over the dimensions of gamma, times gamma.

    input: float32, float16 or bfloat16, any shape. gamma: the same dtype, the last
    dimensions of input. Computed in float32.
    Returns y, as input, and the reciprocal root mean square: float32, with a size of
    1 in the place of each dimension of gamma.
    Raises ValueError where gamma has another dtype or another shape.
    Source: "torch_npu.npu_rms_norm" (Ascend Extension for PyTorch, API reference).
    """
    return _normalized("npu::npu_rms_norm", input, gamma, epsilon)


@body("npu::npu_add_rms_norm")
def npu_add_rms_norm(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-06
) -> tuple[Tensor, Tensor, Tensor]:
    """RMS normalisation of x1 + x2.

    x1, x2: of one shape and dtype; dtypes and gamma as for npu_rms_norm. The sum is
    taken in float32 and rounded to the input's dtype; what is normalised, in float32,
    is that rounded sum.
    Returns y, the reciprocal root mean square as npu_rms_norm does, and the sum.
    Raises ValueError where x2 or gamma does not go with x1.
    Source: "AddRmsNorm" (CANN, operator library).
    """
    op = "npu::npu_add_rms_norm"
    if x1.shape != x2.shape or x1.dtype != x2.dtype:
        raise wrong(op, "x2", x2, f"is not as x1, {x1.dtype} {tuple(x1.shape)}")
    total = (x1.float() + x2.float()).to(x1.dtype)
    y, rstd = _normalized(op, total, gamma, epsilon)
    return y, rstd, total


def _normalized(
    op: str, x: Tensor, gamma: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    if not 0 < gamma.dim() <= x.dim() or gamma.shape != x.shape[-gamma.dim() :]:
        raise wrong(op, "gamma", gamma, f"is not the end of {tuple(x.shape)}")
    if gamma.dtype != x.dtype:
        raise wrong(op, "gamma", gamma, f"has not the dtype {x.dtype}")
    wide = x.float()
    last = tuple(range(-gamma.dim(), 0))
    rstd = torch.rsqrt(wide.square().mean(last, keepdim=True) + epsilon)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd
