"""What streams and graphs hold: tasks, events, and the graphs themselves."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Stack = str


@dataclass(frozen=True)
class Task:
    """One task of a stream; a wait is ``ready`` when what it waits for is there."""

    what: str
    run: Callable[[], None]
    ready: Callable[[], bool] | None = None
    # Where a wait was called, and for one in a graph where the graph was replayed.
    stacks: tuple[Stack, ...] = ()


@dataclass
class Record:
    """One recording of an event, which a wait after it waits for."""

    stream: int
    graph: Graph | None = None
    done: bool = False


@dataclass
class Graph:
    """A captured graph: its tasks in the order of their calls, on ``streams``."""

    number: int
    origin: int
    mode: int
    thread: int
    streams: set[int] = field(default_factory=set)
    # Streams with a task that no other captured stream waits for yet.
    unjoined: set[int] = field(default_factory=set)
    tasks: list[Task] = field(default_factory=list)
    # [first, end) addresses that its tasks read or write, but for those of operators.
    memory: set[tuple[int, int]] = field(default_factory=set)
    operators: list[Any] = field(default_factory=list)
    # Why it must not be replayed any more.
    broken: str = ""

    def uses(self, first: int, end: int) -> bool:
        """Whether a task reads or writes between the two addresses."""
        ranges = [self.memory, *(operator.memory for operator in self.operators)]
        return any(start < end and first < stop for r in ranges for start, stop in r)


@dataclass
class Group:
    """A task group: the operators of a graph whose host arguments may be replaced."""

    stream: int
    graph: int
    operators: list[Any] = field(default_factory=list)


def here() -> Stack:
    """The stack of the caller outside of this package and of torch, innermost last."""
    frames = [
        frame
        for frame in traceback.extract_stack()
        if "/simulated/" not in frame.filename and "<frozen" not in frame.filename
    ]
    return "".join(traceback.format_list(frames[-6:]))
