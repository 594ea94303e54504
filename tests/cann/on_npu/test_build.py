"""The sources of the runtime against the headers of the real wheel."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
import torch
from simulated import build_runtime


@pytest.mark.parametrize(
    ("source", "declared", "written"),
    [
        ("cann_runtime.c", "aclrtDestroyEvent(aclrtEvent", "aclrtDestroyEvent(int"),
        ("hccl_runtime.cpp", "HcclBroadcast(void *", "HcclBroadcast(int *"),
    ],
)
def test_a_signature_that_is_not_of_cann_is_named(
    source: str,
    declared: str,
    written: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = tmp_path / "simulated"
    shutil.copytree(build_runtime.HERE, copy)
    text = (copy / source).read_text()
    assert declared in text
    (copy / source).write_text(text.replace(declared, written))
    monkeypatch.setattr(build_runtime, "HERE", copy)
    spec = importlib.util.find_spec("torch_npu")
    package, torch_itself = Path(spec.origin).parent, Path(torch.__file__).parent
    name = declared.partition("(")[0]
    with pytest.raises(build_runtime.BuildError, match=rf"{source}.*\b{name}\b"):
        build_runtime.build(package, torch_itself, tmp_path / "cache")
    assert [left.name for left in (tmp_path / "cache").iterdir()] == [".lock"]
