"""Capture sizes are bounded by the streams of a device with an old driver."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from small_engine import LAYERS, engine, generate, runner, write_model


@pytest.mark.parametrize("groups", [0, 1, 2])
@pytest.mark.parametrize("layers", [1, 4, 32, 80])
def test_budget_is_that_of_the_facts(layers: int, groups: int) -> None:
    from vllm.compilation.acl_graph import StreamBudget

    budget = StreamBudget(num_layers=layers, num_comm_groups=groups)
    wanted = (1800 - 40 * groups) / (layers + 1) / (1 + 2 * groups)
    assert budget.sizes(is_piecewise=True, is_full=False) == math.floor(wanted)
    wanted = (1800 - 40 * groups) / (1 + 2 * groups)
    assert budget.sizes(is_piecewise=False, is_full=True) == math.floor(wanted)


@pytest.mark.parametrize(
    ("cann", "driver", "is_limited"),
    [
        ("8.5.0", "25.5.1", False),
        ("8.3", "25.5.1", True),
        ("8.5.0", "25.2", True),
        ("", "", True),
    ],
)
def test_old_or_unknown_versions_have_the_limit(
    monkeypatch: pytest.MonkeyPatch, cann: str, driver: str, is_limited: bool
) -> None:
    import torch_npu
    from vllm.compilation.acl_graph import StreamBudget

    versions = {"CANN": cann, "DRIVER": driver}
    monkeypatch.setattr(
        torch_npu.npu.utils, "get_cann_version", lambda module: versions[module]
    )
    assert StreamBudget.is_limited() == is_limited


def test_sizes_that_the_streams_are_not_enough_for_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.compilation.acl_graph import StreamBudget

    monkeypatch.setattr(StreamBudget, "streams", 2 * (LAYERS + 1))
    with engine(write_model(tmp_path, "llama"), "PIECEWISE") as llm:
        assert runner(llm).cudagraph_batch_sizes == [2, 4]
        assert [len(tokens) for tokens in generate(llm, [[1, 2]], [3])] == [3]
