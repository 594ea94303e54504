"""Which platform vLLM takes: with devices, without, and with a plugin beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from vllm import platforms
from vllm.platforms import resolve_current_platform_cls_qualname

NPU = "vllm.platforms.npu.NPUPlatform"
NONE = "vllm.platforms.interface.UnspecifiedPlatform"
OTHER = "other_platform.Other"
HINT = (
    "The built-in platform npu is available too. To use it, set VLLM_PLUGINS to a list "
    "of plugins without other."
)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a platform, installed as far as its entry point goes."""
    info = tmp_path / "other_platform-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: other-platform\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.platform_plugins]\nother = other_platform:register\n"
    )
    module = tmp_path / "other_platform.py"
    module.write_text(f"def register():\n    return {OTHER!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    yield module
    sys.modules.pop("other_platform", None)


def test_where_there_is_a_device(log: pytest.LogCaptureFixture) -> None:
    assert resolve_current_platform_cls_qualname() == NPU
    assert "Confirmed NPU platform is available." in log.messages
    assert type(platforms.current_platform).__name__ == "NPUPlatform"


def test_a_plugin_wins_and_the_log_says_how_to_choose(
    plugin: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_current_platform_cls_qualname() == OTHER
    said = [(record.levelname, record.getMessage()) for record in log.records]
    where = said.index(("INFO", "Platform plugin other is activated"))
    assert said[where + 1] == ("INFO", HINT)
    # As it says.
    for plugins in ("", "another,third"):
        monkeypatch.setenv("VLLM_PLUGINS", plugins)
        assert resolve_current_platform_cls_qualname() == NPU
    monkeypatch.setenv("VLLM_PLUGINS", "third,other")
    assert resolve_current_platform_cls_qualname() == OTHER


def test_a_plugin_that_finds_nothing_does_not_count(
    plugin: Path, log: pytest.LogCaptureFixture
) -> None:
    plugin.write_text("def register():\n    return None\n")
    assert resolve_current_platform_cls_qualname() == NPU
    assert HINT not in log.messages


def test_without_an_npu_there_is_nothing_to_choose(
    plugin: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.npu, "device_count", lambda: 0)
    assert resolve_current_platform_cls_qualname() == OTHER
    assert HINT not in log.messages


def test_without_a_device_there_is_no_platform(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.npu, "device_count", lambda: 0)
    assert resolve_current_platform_cls_qualname() == NONE
    assert "NPU platform is not available because no NPU is found." in log.messages


@pytest.mark.parametrize("fault", ["no package", "no driver"])
def test_a_torch_npu_that_does_not_work_is_no_platform(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "no package":
        monkeypatch.setitem(sys.modules, "torch_npu", None)
        reason = "import of torch_npu halted"
    else:

        def device_count() -> int:
            raise RuntimeError("no driver")

        monkeypatch.setattr(torch.npu, "device_count", device_count)
        reason = fault
    assert resolve_current_platform_cls_qualname() == NONE
    start = f"NPU platform is not available because: {reason}"
    assert any(text.startswith(start) for text in log.messages)


def test_importing_vllm_starts_no_device() -> None:
    """Else a child process could not choose its own."""
    program = (
        "import torch, vllm; from vllm.platforms import current_platform; "
        "print(current_platform.device_type, torch.npu.is_initialized())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=True,
    )
    # torch_npu prints as well.
    assert done.stdout.split()[-2:] == ["npu", "False"]
