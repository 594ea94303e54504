"""One simulated device for all tests of the process, without gradients."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from simulated.machine import Machine
from simulated.start import start

# Before any test module imports torch_npu.
MACHINE = start()


@pytest.fixture(scope="session")
def started() -> Machine:
    return MACHINE


@pytest.fixture(autouse=True)
def machine(started: Machine) -> Iterator[Machine]:
    """The devices, with nothing captured, waiting or failed from the test before."""
    # Graphs of the test before hold streams and memory.
    gc.collect()
    with torch.no_grad():
        yield started
    assert started.capture is None
    assert not any(started.streams.values())
