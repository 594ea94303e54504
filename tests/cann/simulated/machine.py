"""The simulated devices: streams, and the graphs that are captured from them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from simulated.error_codes import ErrorCodes
from simulated.host_memory import store
from simulated.streams import ALL_STREAMS, Streams
from simulated.tasks import Graph, Group, Stack, Task, here

# The Ascend documentation of ACL graph leaves 248 of 2048 hardware streams to others;
# each captured stream of a graph holds one until the graph is destroyed.
GRAPH_STREAMS = ALL_STREAMS - 248

_CAPTURE_MODE_GLOBAL, _, _CAPTURE_MODE_RELAXED = range(3)


class Machine(Streams):
    """Captures, replays and updates graphs, and refuses what a capture forbids."""

    def __init__(self, codes: ErrorCodes, set_error: Callable[[str], None]) -> None:
        super().__init__(codes, set_error)
        self._groups: dict[int, Group] = {}
        self._mode = threading.local()

    def free(self, address: int, size: int) -> int:
        for graph in self.graphs.values():
            if graph.uses(address, address + size):
                graph.broken = f"memory of graph {graph.number} was freed at\n{here()}"
        return 0

    def capture_begin(self, stream: int, mode: int) -> int:
        if self.capture is not None:
            return self.fail(
                self.codes.STREAM_CAPTURED,
                f"stream {self.capture.origin} is captured already",
            )
        if stream == 0:
            return self.fail(
                self.codes.STREAM_CAPTURE_IMPLICIT,
                "the default stream cannot be captured",
            )
        number = next(self.numbers)
        self.capture = Graph(number, stream, mode, threading.get_ident(), {stream})
        return 0

    def capture_info(self, stream: int, status: int, graph: int) -> int:
        captured = self.is_captured(stream)
        ctypes.c_int32.from_address(status).value = int(captured)
        if graph:
            store(graph, self.capture.number if captured else 0)
        return 0

    def capture_end(self, stream: int, out: int) -> int:
        capture, self.capture = self.capture, None
        group, self.group = self.group, None
        if capture is None:
            return self.fail(self.codes.STREAM_NOT_CAPTURED, "no stream is captured")
        if capture.origin != stream:
            return self.fail(
                self.codes.STREAM_CAPTURE_UNMATCHED,
                f"the capture began on stream {capture.origin}, not {stream}",
            )
        if group is not None:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS, "a task group is open"
            )
        if unjoined := capture.unjoined - {stream}:
            return self.fail(
                self.codes.STREAM_UNJOINED,
                "no captured stream waits for the last tasks of streams "
                f"{sorted(unjoined)}",
            )
        used = sum(len(graph.streams) for graph in self.graphs.values())
        if used + len(capture.streams) > GRAPH_STREAMS:
            return self.fail(
                self.codes.NO_STREAM_RESOURCE,
                f"{len(self.graphs)} graphs use {used} of {GRAPH_STREAMS} streams",
            )
        self.graphs[capture.number] = capture
        store(out, capture.number)
        return 0

    def capture_exchange_mode(self, mode: int) -> int:
        word = ctypes.c_int32.from_address(mode)
        before = getattr(self._mode, "value", _CAPTURE_MODE_GLOBAL)
        self._mode.value, word.value = word.value, before
        return 0

    def graph_execute(self, number: int, stream: int) -> int:
        graph = self.graphs.get(number)
        if graph is None:
            return self.fail(self.codes.PARAM_INVALID, f"no graph {number}")
        if graph.broken:
            return self.fail(self.codes.MODEL_EXECUTE, graph.broken)
        replay = here()
        with self.changed:
            self.launches["graph"] += 1
            self.streams[stream] += [_replayed(task, replay) for task in graph.tasks]
            self.pump()
        return 0

    def graph_destroy(self, number: int) -> int:
        self.graphs.pop(number, None)
        return 0

    def group_begin(self, stream: int) -> int:
        if not self.is_captured(stream):
            return self.fail(
                self.codes.STREAM_NOT_CAPTURED, f"stream {stream} is not captured"
            )
        if self.group is not None:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS, "a task group is open already"
            )
        self.group = Group(stream, self.capture.number)
        return 0

    def group_end(self, stream: int, out: int) -> int:
        if self.group is None or self.group.stream != stream:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS, f"no task group on stream {stream}"
            )
        number = next(self.numbers)
        self._groups[number], self.group = self.group, None
        store(out, number)
        return 0

    def update_begin(self, stream: int, group: int) -> int:
        known = self._groups.get(group)
        if known is None or known.graph not in self.graphs or stream in self.updates:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS,
                f"no task group {group} of a graph, or stream {stream} updates one",
            )
        self.updates[stream] = list(self._groups[group].operators)
        return 0

    def update_end(self, stream: int) -> int:
        left = self.updates.pop(stream, None)
        if left is None:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS,
                f"no update of a task group on stream {stream}",
            )
        if left:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS,
                f"the update left {len(left)} operators as captured",
            )
        self.launches["update"] += 1
        return 0

    def forbidden(self, what: str) -> int:
        """The code of what a capture forbids, by its mode and the calling thread's."""
        capture = self.capture
        mine = getattr(self._mode, "value", _CAPTURE_MODE_GLOBAL)
        if capture is None or _CAPTURE_MODE_RELAXED in (mine, capture.mode):
            return 0
        if (
            capture.mode != _CAPTURE_MODE_GLOBAL
            and capture.thread != threading.get_ident()
        ):
            return 0
        return self.fail(
            self.codes.CAPTURE_MODE_NOT_SUPPORT,
            f"a stream is captured: not permitted {what}\n{here()}",
        )


def _replayed(task: Task, stack: Stack) -> Task:
    if task.ready is None:
        return task
    return Task(f"{task.what}, in a graph", task.run, task.ready, (*task.stacks, stack))
