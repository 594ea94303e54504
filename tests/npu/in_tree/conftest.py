"""A configuration of vLLM for layers made by tests, without gradients."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch
import torch_npu  # noqa: F401 (starts the simulated runtime)
from vllm import envs
from vllm.config import VllmConfig, set_current_vllm_config


@pytest.fixture(scope="session", autouse=True)
def in_vllm() -> Iterator[None]:
    # An engine of a test before turns it on for the whole process.
    envs.disable_envs_cache()
    with set_current_vllm_config(VllmConfig()), torch.no_grad():
        yield


@pytest.fixture
def log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    """What vLLM's platforms log, at every level."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    caplog.set_level(logging.DEBUG, "vllm.platforms")
    return caplog
