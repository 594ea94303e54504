"""Which graph a step runs, if any, is what vLLM's dispatcher says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from small_engine import (
    LAYERS,
    SIZES,
    engine,
    generate,
    graphs_of,
    runner,
    write_model,
)

PROMPTS = [[3, 1, 4], [1] * 90, [5, 9, 2, 6, 5], [3, 5], [8] * 20]
COUNTS = (9, 4, 7, 3, 6)


@dataclass
class Step:
    """What a step was to run, and what it ran."""

    tokens: int
    longest_query: int
    said: tuple[Any, Any] | None = None
    replayed: list[Any] = field(default_factory=list)


def _watch(llm: Any, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """A list to which each step from now on adds itself."""
    from vllm.compilation.acl_graph import ACLGraph

    steps: list[Step] = []
    current: list[tuple[Any, Any]] = []
    of_runner = runner(llm)
    dispatcher = of_runner.cudagraph_dispatcher
    dispatch, forward = dispatcher.dispatch, of_runner._model_forward
    execute, replay = of_runner.execute_model, torch.npu.NPUGraph.replay

    def dispatched(*args: Any, **kwargs: Any) -> Any:
        current.append(dispatch(*args, **kwargs))
        return current[-1]

    def executed(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        queries = scheduled.num_scheduled_tokens.values()
        if queries:
            steps.append(Step(sum(queries), max(queries)))
        return execute(scheduled, *args, **kwargs)

    def forwarded(*args: Any, **kwargs: Any) -> Any:
        steps[-1].said = current[-1]
        return forward(*args, **kwargs)

    def replayed(graph: Any) -> None:
        steps[-1].replayed.append(graph)
        replay(graph)

    dispatcher.dispatch = dispatched
    of_runner.execute_model = executed
    of_runner._model_forward = forwarded
    monkeypatch.setattr(torch.npu.NPUGraph, "replay", replayed)
    assert ACLGraph.__mro__[1] is torch.npu.NPUGraph
    return steps


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.mark.parametrize(
    "mode", ["PIECEWISE", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
)
def test_steps_run_what_the_dispatcher_says(
    llama: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.config import CUDAGraphMode

    with engine(llama, mode) as llm:
        graphs = {}
        if mode != "PIECEWISE":
            graphs = {key: x.cudagraph for key, x in graphs_of(llm).items()}
            # One a decode size.
            assert sorted(key.num_tokens for key in graphs) == list(SIZES)
        steps = _watch(llm, monkeypatch)
        generate(llm, PROMPTS, COUNTS)
        for step in steps:
            assert step.said is not None
            said, descriptor = step.said
            if said == CUDAGraphMode.FULL:
                assert step.longest_query == 1
                assert step.replayed == [graphs[descriptor]], step
                fits = min(size for size in SIZES if size >= step.tokens)
                assert descriptor.num_tokens == fits
            elif said == CUDAGraphMode.PIECEWISE:
                assert step.tokens <= SIZES[-1]
                assert len(step.replayed) == len(set(step.replayed)) == LAYERS + 1
            else:
                assert not step.replayed
            is_decode = step.longest_query == 1
            wanted = CUDAGraphMode.NONE
            if step.tokens <= SIZES[-1]:
                if is_decode and mode != "PIECEWISE":
                    wanted = CUDAGraphMode.FULL
                elif mode != "FULL_DECODE_ONLY":
                    wanted = CUDAGraphMode.PIECEWISE
            assert said == wanted, step
        kinds = {(step.said[0].name, step.longest_query > 1) for step in steps}  # type: ignore[index]
        assert ("NONE", True) in kinds
        if mode == "PIECEWISE":
            assert ("PIECEWISE", False) in kinds
        else:
            assert ("FULL", False) in kinds
            assert {
                step.said[1].num_tokens
                for step in steps  # type: ignore[index]
                if step.said[0] == CUDAGraphMode.FULL
            } == set(SIZES)  # type: ignore[index]
