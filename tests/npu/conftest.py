"""The tests on npu tensors run in an environment of their own; see run.py."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch_npu") is None:
    collect_ignore = ["engine", "in_tree"]
