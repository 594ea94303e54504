"""Reference bodies of torch_npu's operators: plain functions over CPU tensors.

A body takes the arguments of the operator's registered schema, computes in float32
and rounds once, to the dtype of its input. An option that it does not model raises
NotImplementedError, an argument that breaks a rule of the operator ValueError; both
name operator, argument and value.

What CANN's kernels demand beyond that is not checked: multiples of 16, head sizes,
block sizes of 128, largest sizes, contiguous memory.
"""

from . import (  # noqa: F401 (each enters its bodies in BODIES)
    activation,
    fused_infer_attention,
    fused_infer_attention_v2,
    kv_cache,
    normalization,
    paged_attention,
    rotary,
)
from .registry import BODIES, body

__all__ = ["BODIES", "body"]
