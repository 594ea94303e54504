"""Stands in for vLLM's compiled kernels: every schema, and bodies for a few operators.

Packed into the tree as ``vllm/_native_ops.py``; the compiled modules' names import it.
The compilation passes look operators up at import, so all of them are defined. What a
small model runs has a body of torch operators; any other operator raises when called.
"""

import json
from pathlib import Path

import torch

SCHEMAS = json.loads(Path(__file__).with_name("_op_schemas.json").read_text())
_libraries = {name: torch.library.Library(name, "FRAGMENT") for name in SCHEMAS}


def _define() -> None:
    for name, schemas in SCHEMAS.items():
        for schema in schemas:
            _libraries[name].define(schema)


def _supports_nothing(*_args) -> bool:
    return False


def _alias(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor over the memory of another one, which it does not keep alive."""
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.untyped_storage().data_ptr(), device, tensor.untyped_storage().nbytes()
    )
    alias = torch.empty(0, dtype=tensor.dtype, device=device)
    return alias.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def weak_ref_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return _alias(tensor, tensor.device)


def get_cuda_view_from_cpu_tensor(tensor: torch.Tensor) -> torch.Tensor:
    # Pinned memory has the same address on the device.
    assert tensor.is_pinned()
    return _alias(tensor, torch.device("cuda", torch.cuda.current_device()))


def silu_and_mul(out: torch.Tensor, x: torch.Tensor) -> None:
    half = x.shape[-1] // 2
    out.copy_(torch.nn.functional.silu(x[..., :half]) * x[..., half:])


def rms_norm(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, epsilon: float
) -> None:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    wide = wide.to(x.dtype)
    out.copy_(wide if weight is None else wide * weight)


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    epsilon: float,
) -> None:
    residual.add_(x)
    rms_norm(x, residual, weight, epsilon)


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    *_more,
) -> None:
    cos, sin = cos_sin_cache[positions.flatten()].chunk(2, dim=-1)
    for tensor in (query, key):
        if tensor is None:
            continue
        heads = tensor.view(cos.shape[0], -1, head_size)
        rotated = heads[..., : 2 * cos.shape[-1]]
        c, s = cos.unsqueeze(1).to(tensor.dtype), sin.unsqueeze(1).to(tensor.dtype)
        if is_neox:
            a, b = rotated.chunk(2, dim=-1)
            new = torch.cat((a * c - b * s, b * c + a * s), dim=-1)
        else:
            a, b = rotated[..., ::2], rotated[..., 1::2]
            new = torch.stack((a * c - b * s, b * c + a * s), dim=-1).flatten(-2)
        rotated.copy_(new)


BODIES = {
    "weak_ref_tensor": (weak_ref_tensor, "CUDA"),
    "get_cuda_view_from_cpu_tensor": (get_cuda_view_from_cpu_tensor, "CPU"),
    "silu_and_mul": (silu_and_mul, "CUDA"),
    "rms_norm": (rms_norm, "CUDA"),
    "fused_add_rms_norm": (fused_add_rms_norm, "CUDA"),
    "rotary_embedding": (rotary_embedding, "CUDA"),
}


def _implement() -> None:
    for schema in SCHEMAS["_C"]:
        name = schema.partition("(")[0]
        if "_supports_" in name:
            body, key = _supports_nothing, "CompositeExplicitAutograd"
        elif name in BODIES:
            body, key = BODIES[name]
        else:
            continue
        _libraries["_C"].impl(name, body, key)


_define()
_implement()
