"""Requests that join and leave at any step, on engines that stay open."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import Reference
from small_engine import (
    VOCABULARY,
    count_preemptions,
    engine,
    parameters,
    write_model,
)

_numbers = random.Random(7)
SHARED = [_numbers.randrange(VOCABULARY) for _ in range(200)]


@dataclass(frozen=True)
class Arrival:
    """A request, and the step at which it comes and, where it is aborted, goes."""

    step: int
    prompt: tuple[int, ...]
    count: int
    aborted_after: int | None = None


@dataclass
class Open:
    """An engine that is kept open, and what it has done so far."""

    llm: Any
    reference: Reference
    preempted: list[str]
    cached: int = 0
    finished: int = 0
    aborted: int = 0

    def serve(self, arrivals: Sequence[Arrival]) -> None:
        """Serve the requests and check their tokens; nothing is left behind."""
        llm_engine = self.llm.llm_engine
        outputs: dict[int, Any] = {}
        step = 0
        last = max(arrival.step for arrival in arrivals)
        while step <= last or llm_engine.has_unfinished_requests():
            for i, arrival in enumerate(arrivals):
                if arrival.step == step:
                    prompt = {"prompt_token_ids": list(arrival.prompt)}
                    llm_engine.add_request(str(i), prompt, parameters(arrival.count))
                if (
                    arrival.aborted_after is not None
                    and arrival.step + arrival.aborted_after == step
                ):
                    llm_engine.abort_request([str(i)])
            for output in llm_engine.step():
                outputs[int(output.request_id)] = output
            step += 1
            assert step < 1000, "requests that do not end"
        ended = [i for i in outputs if outputs[i].finished]
        wanted = [i for i, x in enumerate(arrivals) if x.aborted_after is None]
        assert set(wanted) <= set(ended)
        # One that was to be aborted may have ended before.
        whole = [i for i in ended if outputs[i].outputs[0].finish_reason == "length"]
        answers = [list(outputs[i].outputs[0].token_ids) for i in whole]
        assert [len(x) for x in answers] == [arrivals[i].count for i in whole]
        self.reference.check([arrivals[i].prompt for i in whole], answers)
        self.cached += sum(outputs[i].num_cached_tokens or 0 for i in whole)
        self.finished += len(whole)
        self.aborted += len(arrivals) - len(whole)


@contextmanager
def _open(folder: Path, mode: str, **others: Any) -> Iterator[Open]:
    with engine(folder, mode, **others) as llm:
        preempted = count_preemptions(llm)
        yield Open(llm, Reference(folder, torch.float32), preempted)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.mark.parametrize("mode", ["FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"])
def test_64_requests_at_once(llama: Path, mode: str) -> None:
    sizes = [1, 2, 4, 8, 16, 32, 64]
    settings = {"max_num_seqs": 64, "max_num_batched_tokens": 256}
    numbers = random.Random(11)
    arrivals = [
        Arrival(
            # The first 64 come at once; others as those leave.
            step=max(0, i - 64),
            prompt=tuple(numbers.randrange(VOCABULARY) for _ in range(1 + i * 7 % 37)),
            count=12 + i * 5 % 17,
        )
        for i in range(80)
    ]
    with _open(
        llama, mode, sizes=sizes, num_gpu_blocks_override=90, **settings
    ) as opened:
        running: list[int] = []
        scheduler = opened.llm.llm_engine.engine_core.engine_core.scheduler
        schedule = scheduler.schedule

        def counted(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            running.append(len(output.num_scheduled_tokens))
            return output

        scheduler.schedule = counted
        opened.serve(arrivals)
        assert opened.finished == 80
        assert max(running) == 64
        # Batches between the sizes of graphs, and all kinds of them.
        assert len(set(running)) > 8, running
        assert running[-1] < 8


@st.composite
def arrival(draw: st.DrawFn) -> Arrival:
    # Of a range all are as likely; Hypothesis prefers small integers. Those of the
    # second one need another block for their answers.
    length = draw(st.sampled_from(range(1, 201)) | st.sampled_from(range(118, 129)))
    if draw(st.booleans()):
        prompt = SHARED[:length]
    else:
        numbers = random.Random(draw(st.integers(0, 1 << 16)))
        prompt = [numbers.randrange(VOCABULARY) for _ in range(length)]
    return Arrival(
        step=draw(st.integers(0, 12)),
        prompt=tuple(prompt),
        count=draw(st.sampled_from(range(1, 13))),
        aborted_after=draw(st.sampled_from([None] * 18 + [*range(9)])),
    )


@pytest.fixture(scope="module")
def opened(llama: Path) -> Iterator[Open]:
    """With 4 blocks for requests of up to two, and prefixes of a block."""
    with _open(
        llama,
        "FULL_AND_PIECEWISE",
        enable_prefix_caching=True,
        num_gpu_blocks_override=5,
    ) as opened:
        yield opened


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(arrival(), min_size=3, max_size=9))
def test_any_schedule_gives_greedy_tokens(
    opened: Open, arrivals: list[Arrival]
) -> None:
    opened.serve(arrivals)


def test_the_schedules_reach_everything(opened: Open) -> None:
    if not opened.finished:
        # Alone, it has nothing to look at.
        test_any_schedule_gives_greedy_tokens(opened)
    print(opened.finished, opened.aborted, opened.cached, len(opened.preempted))
    assert opened.finished > 40
    assert opened.aborted > 10
    assert opened.cached >= 2 * 128
    assert len(opened.preempted) >= 2
