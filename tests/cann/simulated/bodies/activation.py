"""Gated activations."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import silu

from .registry import body, wrong


@body("npu::npu_swiglu")
def npu_swiglu(input: Tensor, dim: int = -1) -> Tensor:
    """SiLU of the first half of `dim`, times the second half.

    input: floating point, any shape whose `dim` has an even size.
    Returns the shape of `input` with `dim` halved, in its dtype; computed in float32.
    Raises ValueError for a `dim` that is not there or has an odd size.
    Source: "torch_npu.npu_swiglu" (Ascend Extension for PyTorch, API reference).
    """
    op = "npu::npu_swiglu"
    if not -input.dim() <= dim < input.dim():
        raise wrong(op, "dim", dim, f"is no dimension of {tuple(input.shape)}")
    if input.shape[dim] % 2:
        raise wrong(op, "dim", dim, f"has an odd size in {tuple(input.shape)}")
    gate, up = input.float().chunk(2, dim)
    return (silu(gate) * up).to(input.dtype)
