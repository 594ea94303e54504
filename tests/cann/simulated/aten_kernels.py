"""Which aten operators of torch_npu get a CPU body, and their registration."""

from __future__ import annotations

import torch

from simulated.executor import Body, Kernel
from simulated.machine import Machine

# torch_npu's own: they make, resize or describe tensors, and compute nothing.
# fmt: off
_OF_TORCH_NPU = {
    "_copy_from", "_copy_from_and_resize", "_has_compatible_shallow_copy_type",
    "_pin_memory", "_reshape_alias", "_resize_output_", "_to_copy", "as_strided",
    "as_strided_", "contiguous", "detach", "empty", "empty_like", "empty_strided",
    "is_pinned", "is_set_to", "lift", "lift_fresh", "new_empty", "new_empty_strided",
    "pin_memory", "record_stream", "resize_", "resize_as_", "resize_output_", "set_",
    "squeeze_", "storage_offset", "to", "transpose_", "t_", "unsqueeze_", "view",
}
# fmt: on
# Parts of names of npu:: operators that describe or make tensors only.
# fmt: off
_DESCRIBE_TENSORS = (
    "format", "storage", "change_data_ptr", "copy_memory", "infer_output"
)
# fmt: on


def register(machine: Machine, bodies: dict[str, Body]) -> tuple[object, ...]:
    """Register kernels for all computing aten operators and for those in ``bodies``.

    Returns the libraries, whose end would undo the registration. The other operators of
    torch_npu refuse by their name. An aten operator that is not here keeps torch_npu's
    kernel, which stops by its name when it asks CANN for it.
    """
    libraries: dict[str, torch.library.Library] = {}

    def add(op: torch._ops.OpOverload, body: Body | None) -> None:
        library = libraries.get(op.namespace)
        if library is None:
            library = torch.library.Library(op.namespace, "IMPL")
            libraries[op.namespace] = library
        name = op._schema.name.partition("::")[2]
        if op._overloadname != "default":
            name += f".{op._overloadname}"
        kernel = Kernel(machine, op, body)
        library.impl(name, kernel.__call__, "PrivateUse1", allow_override=True)

    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and _computes(name):
            add(_overload(name), None)
        elif name not in bodies and _is_of_torch_npu_and_computes(name):
            add(_overload(name), _refusal(name))
    for name, body in bodies.items():
        add(_overload(name), body)
    return tuple(libraries.values())


def _computes(name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    base = name.partition("::")[2].partition(".")[0]
    # torch_npu registers a few kernels for operators that no schema describes.
    if not hasattr(torch.ops.aten, base):
        return False
    if base in _OF_TORCH_NPU or not has(name, "PrivateUse1"):
        return False
    op = _overload(name)
    if op.is_view and not op._schema.is_mutable:
        return False
    on_cpu = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return any(has(name, key) for key in on_cpu)


def _is_of_torch_npu_and_computes(name: str) -> bool:
    if not name.startswith(("npu::", "atb::")):
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")
    return has and not any(word in name for word in _DESCRIBE_TENSORS)


def _refusal(name: str) -> Body:
    def refuse(*arguments: object, **named: object) -> None:
        raise NotImplementedError(
            f"{name} has no reference body; tests/cann/README.md says how to add one"
        )

    return refuse


def _overload(name: str) -> torch._ops.OpOverload:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base)
    return getattr(packet, overload or "default")
