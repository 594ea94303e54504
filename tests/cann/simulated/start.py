"""Starts the real torch_npu on the simulated runtime, in this process."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib.util
import os
import sys
import traceback
from pathlib import Path

_HANDLER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_uint64] * 4)
_LIMIT = 64 << 30
# Kept for the life of the process: libraries, the callback, registrations.
_kept: list[object] = []


def start(devices: int = 1, soc: str = "Ascend910B4", memory: int = _LIMIT) -> object:
    """Make ``import torch_npu`` work and run its operators; returns the Machine.

    ``devices`` of type ``soc`` with ``memory`` bytes each; torch may be imported, but
    torch_npu not yet. The first call for a wheel builds the libraries into the XDG
    cache. Raises ImportError without torch_npu, BuildError without a compiler or with
    a damaged wheel.
    """
    if _kept:
        return _kept[0]
    # A function without a body ends the process: this says where it was called.
    faulthandler.enable()
    os.environ["TASK_QUEUE_ENABLE"] = "0"
    if "SIMULATED_CANN_LOG" in os.environ:
        # Else torch_npu passes on little of what it logs.
        os.environ.setdefault("ASCEND_GLOBAL_LOG_LEVEL", "0")
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch

    from simulated.build_runtime import build
    from simulated.collectives import connect
    from simulated.error_codes import ErrorCodes
    from simulated.machine import Machine

    spec = importlib.util.find_spec("torch_npu")
    if spec is None or spec.origin is None:
        raise ImportError("no torch_npu in this environment")
    torch_npu = Path(spec.origin).parent
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = build(
        torch_npu, Path(torch.__file__).parent, cache / "vllm-patchkit" / "cann"
    )
    core = ctypes.CDLL(str(folder / "libsimulated_cann.so"), mode=ctypes.RTLD_GLOBAL)
    # torch_npu finds these by their names, as they are loaded.
    libraries = [
        ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL) for file in folder.glob("*.so")
    ]
    machine = Machine(
        ErrorCodes(torch_npu), lambda text: core.simulated_set_error(text.encode())
    )
    core.simulated_calls.restype = ctypes.c_char_p
    handler = _handler(machine, core.simulated_calls().decode().split())
    core.simulated_start(handler, devices, soc.encode(), ctypes.c_size_t(memory))
    _kept.extend([machine, core, libraries, handler, connect(core, machine)])

    import torch_npu

    from simulated.aten_kernels import register
    from simulated.bodies import BODIES

    _kept.append(register(machine, BODIES))
    return machine


def _handler(machine: object, calls: list[str]) -> object:
    methods = [getattr(machine, name) for name in calls]
    arities = [method.__func__.__code__.co_argcount - 1 for method in methods]

    def handle(call: int, *values: int) -> int:
        try:
            return methods[call](*values[: arities[call]])
        except Exception:
            text = f"{calls[call]} failed:\n{traceback.format_exc()}"
            print(text, file=sys.stderr)
            # ACL_ERROR_RT_INTERNAL_ERROR
            return machine.fail(507000, text)

    return _HANDLER(handle)
