"""Host arguments in a graph: updated they equal eager, left alone they are stale."""

from __future__ import annotations

import pytest
import torch
from decode_loop import REQUESTS, Model, decode


@pytest.fixture(scope="module")
def eager(started: object) -> torch.Tensor:
    with torch.no_grad():
        return decode("eager")


@pytest.mark.parametrize("mode", ["eager", "task groups", "dispatched"])
def test_a_graph_with_updates_is_eager_bit_for_bit(mode, eager: torch.Tensor) -> None:
    assert torch.equal(decode(mode), eager)
    assert len(eager.argmax(-1).unique()) > 4


def test_without_the_update_the_answer_is_stale_and_reproducible(
    eager: torch.Tensor,
) -> None:
    stale = decode("stale")
    # The first step has the captured length.
    assert torch.equal(stale[0], eager[0])
    assert not torch.equal(stale.argmax(-1), eager.argmax(-1))
    assert torch.equal(decode("stale"), stale)


def test_a_replay_that_no_update_follows_is_a_deadlock(eager: torch.Tensor) -> None:
    model, graph = Model(), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        logits = model.forward([1] * REQUESTS, True)
    graph.replay()
    with pytest.raises(RuntimeError, match=r"(?s)deadlock.*in _grouped.*in replay"):
        logits.cpu()
