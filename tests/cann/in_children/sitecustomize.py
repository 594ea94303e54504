"""Makes ``import torch_npu`` start the simulated runtime, in child processes too.

For a program that starts Python processes of its own, as vLLM does: with this folder
and its parent on PYTHONPATH every one of them imports this module first.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType


class _Loaded(importlib.abc.Loader):
    """Gives the module that an import inside of start() has loaded."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:  # noqa: ARG002 (importlib calls it so)
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _Starter(importlib.abc.MetaPathFinder):
    """Starts the runtime with SIMULATED_CANN_DEVICES devices, 1 unless it is set."""

    def find_spec(
        self,
        name: str,
        path: object,  # noqa: ARG002 (importlib calls it so)
        target: object = None,  # noqa: ARG002 (importlib calls it so)
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch_npu":
            return None
        sys.meta_path.remove(self)
        from simulated.start import start

        start(devices=int(os.environ.get("SIMULATED_CANN_DEVICES", "1")))
        # A module that is there would be loaded again, by its own loader.
        return importlib.machinery.ModuleSpec(name, _Loaded(sys.modules.pop(name)))


sys.meta_path.insert(0, _Starter())
