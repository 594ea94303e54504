"""A CPU in the place of a GPU, one process in the place of many, and the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import upstream_api
from stand_ins import EagerCapture, EagerGraph
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.profiler import capture_trace_files, capture_traces

LEFT_OUT: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(there, what): left out where the release has no such thing"
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Tests of what the release does not have are not collected."""
    left_out = {
        item: mark.args[1]
        for item in items
        for mark in item.iter_markers("needs")
        if not mark.args[0]
    }
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
    names = {f"{item.path.stem}::{item.name}": what for item, what in left_out.items()}
    config.stash[LEFT_OUT] = [
        f"left out: {name}: the release has no {what}" for name, what in names.items()
    ]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Which tests those are, and why."""
    for line in config.stash.get(LEFT_OUT, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def one_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The real groups of ranks, of one rank."""
    meeting = tmp_path_factory.mktemp("ranks") / "meeting"
    init_distributed_environment(1, 0, f"file://{meeting}", 0, backend="gloo")
    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig("cpu"))):
        initialize_model_parallel(backend="gloo")


class Platform:
    """Pools that are not there, and none of the platforms that capture asks for."""

    _global_graph_pool = "global pool"

    def get_global_graph_pool(self) -> str:
        return self._global_graph_pool

    def graph_pool_handle(self) -> str:
        return "pool"

    def is_cuda_alike(self) -> bool:
        return False

    def is_rocm(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def eager_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that run eagerly, on streams and pools that are not there."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", EagerGraph)
    monkeypatch.setattr(torch.cuda, "graph", EagerCapture)
    stand_ins: dict[str, Any] = {
        "graph_capture": lambda **_: nullcontext(),
        "current_platform": Platform(),
        "current_stream": lambda: None,
        "lock_workspace": lambda: None,
        "PIN_MEMORY": False,
        "is_pin_memory_available": lambda: False,
        # The models that are captured here are plain functions.
        "has_compiled_submodule": lambda _: True,
    }
    for module in upstream_api.device_modules():
        for name, stand_in in stand_ins.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, stand_in)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda: (1, 2))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1, 2))
    monkeypatch.setattr(capture_trace_files, "_used_directories", set())


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """No test leaves a session or a profiler behind."""
    yield
    assert capture_traces._session is None
    assert not torch.autograd._profiler_enabled()


class Log(logging.Handler):
    """What vLLM logged, as ``LEVEL text`` lines."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def of(self, level: str) -> list[str]:
        """The lines of one level, without it."""
        size = len(level) + 1
        return [line[size:] for line in self.lines if line.startswith(f"{level} ")]


@pytest.fixture
def log() -> Iterator[Log]:
    """The log lines of the modules under test."""
    handler = Log()
    logger = logging.getLogger("vllm.profiler")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)
