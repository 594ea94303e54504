"""Settings of vLLM for all of the engine's tests, and the simulated machine."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    # Engine and worker in this process, where the tests look at them.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}


@pytest.fixture(scope="session")
def machine() -> Any:
    """The simulated machine: counts what the host launches."""
    import torch_npu  # noqa: F401

    if importlib.util.find_spec("simulated") is None:
        pytest.skip("looks into the simulated machine, and this is a real one")
    from simulated.start import start

    return start()
