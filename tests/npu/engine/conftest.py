"""Settings of vLLM for all of the engine's tests, and the simulated machine."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
from typing import Any

import pytest

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    # Threads that wait for each other cost more than these small models.
    "OMP_NUM_THREADS": "1",
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


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """Import what engines need, and let no collection of garbage go through it.

    vLLM collects around captures, as small_engine does around engines.
    """
    for name in ("transformers", "vllm.entrypoints.llm", "vllm.v1.worker.npu_worker"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
