"""Runs operators on npu tensors by their bodies on the CPU, in the order of streams.

On an idle stream an operator runs during its call. While its stream is captured, or
held by a wait, it must not: its outputs get their shapes from the meta kernel and NaN
as values, and the operator becomes a task, which replays run on the same storage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from simulated.error_codes import DeviceError
from simulated.host_alias import (
    alias,
    aliases,
    memory,
    of_now,
    on_device,
    on_meta,
    tensors,
)
from simulated.machine import Machine
from simulated.random_numbers import host_generator
from simulated.tasks import Task
from simulated.unrecorded import unrecorded

Body = Callable[..., Any]

# Operators whose result the host reads, or has to know the size of.
_READ_BY_THE_HOST = {
    "aten::_local_scalar_dense",
    "aten::_unique2",
    "aten::bincount",
    "aten::equal",
    "aten::is_nonzero",
    "aten::masked_select",
    "aten::nonzero",
    "aten::unique_consecutive",
    "aten::unique_dim",
}
# Arguments that are, or may be, in host memory: they go to the device with the launch.
_FROM_THE_HOST = {
    "aten::copy_": {"self", "src"},
    "aten::index": {"indices"},
    "aten::index_put": {"indices"},
    "aten::index_put_": {"indices"},
    "aten::_index_put_impl_": {"indices"},
    "atb::_npu_paged_attention": {"context_lens"},
    "atb::_npu_paged_attention_get_workspace": {"context_lens"},
}
# Without a workspace they allocate one in each call: a known deadlock on Ascend.
_ALLOCATE_A_WORKSPACE = {"atb::_npu_paged_attention"}


class Operator:
    """One launched operator, with the arguments that its next run takes."""

    def __init__(self, kernel: Kernel, arguments: tuple, named: dict, out: Any) -> None:
        self.kernel = kernel
        self.arguments = arguments
        self.named = named
        # Aliases that a run fills, None where the operator writes to its arguments.
        self.out = out
        # [first, end) addresses, for one in a graph.
        self.memory: list[tuple[int, int]] = []

    def run(self) -> None:
        with unrecorded:
            result = self.kernel.compute(self.arguments, self.named)
            if self.out is not None:
                for to, value in zip(tensors(self.out), tensors(result), strict=True):
                    to.copy_(value)


class Kernel:
    """The PrivateUse1 kernel of one operator.

    ``body`` takes and returns CPU tensors. ``writes`` names the arguments that it
    writes to and returns; None says that it returns new tensors.
    """

    def __init__(
        self, machine: Machine, op: torch._ops.OpOverload, body: Body | None = None
    ) -> None:
        self.machine = machine
        self.op = op
        self.name = op._schema.name
        self.body = body or op
        self.writes = _written_arguments(op)
        self._argument_names = [argument.name for argument in op._schema.arguments]
        self._takes_generator = "generator" in self._argument_names
        self._draws = torch.Tag.nondeterministic_seeded in op.tags
        self._from_the_host = _FROM_THE_HOST.get(self.name, set())
        self._num_returns = len(op._schema.returns)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with unrecorded:
            return self._launch(arguments, named)

    def _launch(self, arguments: tuple, named: dict) -> Any:
        import torch_npu

        device = _device_of(arguments, named)
        stream = torch_npu.npu.current_stream(device).npu_stream
        machine = self.machine
        self._refuse_other_devices(arguments, named, device)
        if (pending := machine.updates.get(stream)) is not None:
            return self._update(pending, arguments, named, device)
        if self._is_read_by_the_host(arguments, named):
            machine.host_reads(self.name, stream)
        if machine.is_captured(stream) or not machine.is_idle(stream):
            return self._defer(stream, arguments, named, device)
        operator = Operator(self, aliases(arguments), aliases(named), None)
        if self.writes is not None:
            self._launch_now(stream, operator)
            if self._resize_outputs(named, operator.named):
                # The body wrote to memory of its own in place of what was too small.
                return self._launch(arguments, named)
            return self._written(arguments, named)
        result = self.compute(operator.arguments, operator.named)
        machine.launch(stream, Task(self.name, lambda: None))
        made = on_device(result, device)
        for to, value in zip(tensors(made), tensors(result), strict=True):
            if to.device.type == "npu":
                alias(to).copy_(value)
        return made

    def compute(self, arguments: tuple, named: dict) -> Any:
        """The body's result for arguments on the CPU."""
        if self._takes_generator:
            named = {**named, "generator": host_generator(named.get("generator"))}
        elif self._draws:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(host_generator(None).get_state())
                return self.body(*arguments, **named)
        return self.body(*arguments, **named)

    def _launch_now(self, stream: int, operator: Operator) -> None:
        # Its error is the caller's, as the call has not returned.
        operator.run()
        self.machine.launch(stream, Task(self.name, lambda: None))

    def _refuse_other_devices(
        self, arguments: tuple, named: dict, device: torch.device
    ) -> None:
        """Host memory looks like device memory here, and a kernel cannot read it."""
        for name, value in (
            *zip(self._argument_names, arguments, strict=False),
            *named.items(),
        ):
            for tensor in tensors(value):
                # A number of the host becomes one of the kernel's arguments.
                is_number = tensor.dim() == 0 and tensor.device.type == "cpu"
                if (
                    tensor.device != device
                    and name not in self._from_the_host
                    and not (is_number and name not in (self.writes or ()))
                ):
                    raise RuntimeError(
                        "Expected all tensors to be on the same device: argument "
                        f"{name} of {self.name} is on {tensor.device}, not on {device}"
                    )

    def _defer(
        self, stream: int, arguments: tuple, named: dict, device: torch.device
    ) -> Any:
        machine = self.machine
        out = result = None
        if self.writes is not None:
            self._check_written(arguments, named)
            result = self._written(arguments, named)
        else:
            result = on_device(self._shapes(arguments, named), device)
            out = aliases(result)
            for tensor in tensors(out):
                _spoil(tensor)
        operator = Operator(self, *self._at_launch(arguments, named), out)
        if machine.is_captured(stream):
            operator.memory = memory((arguments, named, result))
            machine.note_operator(operator)
        machine.launch(stream, Task(self.name, operator.run))
        return result

    def _update(
        self,
        pending: list[Operator],
        arguments: tuple,
        named: dict,
        device: torch.device,
    ) -> Any:
        """Give a captured operator the arguments of this call; nothing runs."""
        operator = pending.pop(0) if pending else None
        if operator is None or operator.kernel is not self:
            captured = operator.kernel.name if operator else "nothing more"
            raise DeviceError(
                self.machine.codes.STREAM_TASK_GROUP_STATUS,
                f"update of a task group: {captured} was captured, "
                f"{self.name} is called",
            )
        allocates = self.name in _ALLOCATE_A_WORKSPACE
        # Its allocation waits for the device, and so for who awaits this update.
        if (
            allocates
            and named.get("workspace") is None
            and (code := self.machine.device_synchronize(0))
        ):
            text = f"{self.name} allocates its workspace: {self.machine.error}"
            raise DeviceError(code, text)
        operator.arguments, operator.named = self._at_launch(arguments, named)
        if self.writes is not None:
            result = self._written(arguments, named)
        else:
            # The device writes to the output of this call from now on.
            result = on_device(operator.out, device)
            operator.out = aliases(result)
        operator.memory = memory((arguments, named, result))
        return result

    def _at_launch(self, arguments: tuple, named: dict) -> tuple[tuple, dict]:
        """The arguments of a later run: those of the host as they are now.

        A copy is the exception: it reads and writes host memory when it runs.
        """
        if self.name == "aten::copy_":
            return aliases(arguments), aliases(named)
        return aliases(of_now(arguments)), aliases(of_now(named))

    def _check_written(self, arguments: tuple, named: dict) -> None:
        """Refuse now what a later run would refuse; resize an out= of another shape."""
        if self.op.namespace != "aten" or self.name in _READ_BY_THE_HOST:
            return
        seen = on_meta(named)
        with contextlib.suppress(NotImplementedError):
            self.op(*on_meta(arguments), **seen)
        self._resize_outputs(named, seen)

    def _resize_outputs(self, named: dict, seen: dict) -> bool:
        """Give each out= the shape that its stand-in in ``seen`` got; whether any."""
        names = [name for name in self.writes or () if name in named]
        pairs = zip(
            tensors([named[name] for name in names]),
            tensors([seen[name] for name in names]),
            strict=True,
        )
        others = [(out, its) for out, its in pairs if out.shape != its.shape]
        for out, its in others:
            out.resize_(its.shape)
        return bool(others)

    def _shapes(self, arguments: tuple, named: dict) -> Any:
        """The result as meta tensors."""
        try:
            return self.op(*on_meta(arguments), **on_meta(named))
        except NotImplementedError:
            if "workspace" in self.name:
                # Its size depends on host arguments alone.
                return on_meta(self.compute(aliases(arguments), aliases(named)))
            raise NotImplementedError(
                f"{self.name} has no meta kernel, so it cannot be captured here"
            ) from None

    def _is_read_by_the_host(self, arguments: tuple, named: dict) -> bool:
        if self.name in _READ_BY_THE_HOST:
            return True
        if self.name in ("aten::index", "aten::index_put_", "aten::_index_put_impl_"):
            indices = [index for index in arguments[1] if index is not None]
            return any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        if self.name == "aten::repeat_interleave":
            return named.get("output_size") is None
        if self.name == "aten::copy_":
            to, source = arguments[:2]
            if to.device.type == source.device.type:
                return False
            return not (
                arguments[2] if len(arguments) > 2 else named.get("non_blocking")
            )
        return False

    def _written(self, arguments: tuple, named: dict) -> Any:
        values: list[Any] = []
        for name in self.writes or ():
            place = self._argument_names.index(name)
            value = named[name] if name in named else arguments[place]
            values += value if isinstance(value, (list, tuple)) else [value]
        if self._num_returns == 0:
            return None
        return (
            values[0] if self._num_returns == 1 else tuple(values[: self._num_returns])
        )


def _written_arguments(op: torch._ops.OpOverload) -> list[str] | None:
    schema = op._schema
    if "get_workspace" in schema.name or "get_max_workspace" in schema.name:
        # Some name an output to write to, and make a new tensor all the same.
        return None
    written = [
        argument.name
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    # torch_npu's .out forms and its ATB operators do not say that they write.
    if not written and op._overloadname.endswith("out"):
        written = ["out"]
    if not written and op.namespace == "atb" and not schema.returns:
        return []
    return written or None


def _spoil(tensor: torch.Tensor) -> None:
    """What nobody has computed must not look like a result by chance."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype != torch.bool:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


def _device_of(arguments: tuple, named: dict) -> torch.device:
    for tensor in tensors((arguments, named)):
        if tensor.device.type == "npu":
            return tensor.device
    device = named.get("device")
    if isinstance(device, torch.device) and device.index is not None:
        return device
    return torch.device("npu", torch.npu.current_device())
