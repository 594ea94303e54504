"""A CPU in the place of a GPU, one process in the place of many, and the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from stand_ins import EagerCapture, EagerGraph
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.profiler import capture_trace_files, capture_traces
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu import cudagraph_utils


@pytest.fixture(scope="session", autouse=True)
def one_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The real groups of ranks, of one rank."""
    meeting = tmp_path_factory.mktemp("ranks") / "meeting"
    init_distributed_environment(1, 0, f"file://{meeting}", 0, backend="gloo")
    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig("cpu"))):
        initialize_model_parallel(backend="gloo")


@pytest.fixture(autouse=True)
def eager_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that run eagerly, on streams and pools that are not there."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", EagerGraph)
    monkeypatch.setattr(torch.cuda, "graph", EagerCapture)
    pools = SimpleNamespace(
        get_global_graph_pool=lambda: "global pool",
        graph_pool_handle=lambda: "pool",
        is_cuda_alike=lambda: False,
        is_rocm=lambda: False,
    )
    for module in (cudagraph_utils, gpu_model_runner):
        monkeypatch.setattr(module, "graph_capture", lambda device: nullcontext())
        monkeypatch.setattr(module, "current_platform", pools)
    monkeypatch.setattr(gpu_model_runner, "lock_workspace", lambda: None)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda: (1, 2))
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
