"""Makes ``import torch_npu`` start the simulated runtime, in child processes too.

For a program that starts Python processes of its own, as vLLM does: with this folder
and its parent on PYTHONPATH every one of them imports this module first.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType


class _Starter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Starts the runtime with SIMULATED_CANN_DEVICES devices, 1 unless it is set.

    Only an import does; whoever asks whether there is a torch_npu gets its spec.
    """

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch_npu":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        sys.meta_path.remove(self)
        from simulated.start import start

        start(devices=int(os.environ.get("SIMULATED_CANN_DEVICES", "1")))
        # Imported by start(); the import that led here enters it once more.
        module = sys.modules.pop(spec.name)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


sys.meta_path.insert(0, _Starter())
