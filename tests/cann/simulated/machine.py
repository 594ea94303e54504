"""The simulated devices' streams, events and graphs: who runs when, and what is refused.

A stream runs its tasks in order. A task runs as soon as all before it have run and, for
a wait, what it waits for is there: without a wait that is during the call itself.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable

from simulated.error_codes import DeviceError, ErrorCodes
from simulated.tasks import Graph, Group, Record, Stack, Task, here

# Of 2048 hardware streams 248 are left to others than graphs; see facts of vLLM Ascend's
# capture size limits, documented with ACL graph in the Ascend documentation.
ALL_STREAMS = 2048
GRAPH_STREAMS = ALL_STREAMS - 248
# A wait whose record has not come by then, with no task running, is a deadlock.
DEADLOCK_SECONDS = 0.5

_CAPTURE_MODE_GLOBAL, _, _CAPTURE_MODE_RELAXED = range(3)


class Machine:
    """Answers the calls of cann_runtime.c; each returns an error code, 0 for none."""

    def __init__(self, codes: ErrorCodes, set_error: Callable[[str], None]) -> None:
        self.codes = codes
        self.executed = 0
        self.launches = 0
        self.capture: Graph | None = None
        self.graphs: dict[int, Graph] = {}
        self.updates: dict[int, list] = {}
        self._set_error = set_error
        self._changed = threading.Condition(threading.RLock())
        self._streams: dict[int, deque[Task]] = {0: deque()}
        self._events: dict[int, Record | None] = {}
        self._groups: dict[int, Group] = {}
        self._group: Group | None = None
        self._numbers = iter(range(1, 1 << 62))
        self._mode = threading.local()
        self._failures: list[str] = []

    # ---- what the executor of operators asks

    def is_captured(self, stream: int) -> bool:
        return self.capture is not None and stream in self.capture.streams

    def is_idle(self, stream: int) -> bool:
        return not self._streams[stream]

    def launch(self, stream: int, task: Task) -> None:
        """Append a task to the graph being captured on ``stream``, or to the stream."""
        with self._changed:
            if self.capture is not None and stream in self.capture.streams:
                self.capture.tasks.append(task)
                self.capture.unjoined.add(stream)
            else:
                self.launches += 1
                self._streams[stream].append(task)
                self._pump()

    def add_to_group(self, operator: object) -> None:
        if self._group is not None:
            self._group.operators.append(operator)

    def note_memory(self, ranges: Iterable[tuple[int, int]]) -> None:
        if self.capture is not None:
            self.capture.memory.update(ranges)

    def host_reads(self, what: str, stream: int) -> None:
        """Wait for ``stream``, as ``what`` reads its result on the host.

        Raises DeviceError while a capture forbids it, on a deadlock, and for a task
        that failed.
        """
        if code := self.stream_synchronize(stream, 0):
            raise DeviceError(code, f"{what} reads device memory on the host: {self.error}")

    @property
    def error(self) -> str:
        return self._last_error if hasattr(self, "_last_error") else ""

    def fail(self, code: int, text: str) -> int:
        """Keep ``text`` for aclGetRecentErrMsg and return ``code``."""
        self._last_error = text
        self._set_error(text)
        return code

    # ---- streams

    def stream_create(self, out: int) -> int:
        used = len(self._streams) + sum(len(g.streams) for g in self.graphs.values())
        if used >= ALL_STREAMS:
            return self.fail(
                self.codes.NO_STREAM_RESOURCE, f"all {ALL_STREAMS} streams are in use"
            )
        number = next(self._numbers)
        self._streams[number] = deque()
        _store(out, number)
        return 0

    def stream_destroy(self, stream: int, force: int) -> int:
        if not force and self._streams[stream]:
            return self.fail(
                self.codes.STREAM_NOT_COMPLETE, f"stream {stream} has tasks left"
            )
        del self._streams[stream]
        return 0

    def stream_query(self, stream: int, out: int) -> int:
        # ACL_STREAM_STATUS_COMPLETE is 0, NOT_READY 1.
        ctypes.c_int32.from_address(out).value = int(bool(self._streams[stream]))
        return 0

    def stream_synchronize(self, stream: int, _timeout: int) -> int:
        if self.is_captured(stream):
            return self.fail(
                self.codes.STREAM_CAPTURED, f"stream {stream} is captured: no waiting for it"
            )
        return self._forbidden("to wait for a stream") or self._wait([stream])

    def device_synchronize(self, _timeout: int) -> int:
        if self.capture is not None:
            return self._forbidden("to wait for the device") or self.fail(
                self.codes.STREAM_CAPTURED, "a stream of the device is captured"
            )
        return self._wait(list(self._streams))

    def copy_now(self) -> int:
        return self._forbidden("to copy at once")

    def copy(self, to: int, source: int, size: int, stream: int) -> int:
        self.note_memory([(to, to + size), (source, source + size)])
        self.launch(stream, Task("copy", lambda: _move(to, source, size)))
        return 0

    def fill(self, to: int, value: int, size: int, stream: int) -> int:
        byte = value & 0xFF
        self.note_memory([(to, to + size)])
        self.launch(stream, Task("fill", lambda: _set(to, byte, size)))
        return 0

    def host_function(self, function: int, argument: int, stream: int) -> int:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        self.launch(stream, Task("host function", lambda: call(argument)))
        return 0

    # ---- events and values

    def event_create(self, out: int, _flag: int) -> int:
        number = next(self._numbers)
        self._events[number] = None
        _store(out, number)
        return 0

    def event_destroy(self, event: int) -> int:
        self._events.pop(event, None)
        return 0

    def event_record(self, event: int, stream: int) -> int:
        graph = self.capture if self.is_captured(stream) else None
        record = self._events[event] = Record(stream, graph)

        def run() -> None:
            record.done = True

        self.launch(stream, Task(f"record of event {event}", run))
        return 0

    def event_wait(self, event: int, stream: int) -> int:
        record = self._events[event]
        capture = self.capture
        if record is not None and record.graph is not None:
            if record.graph is not capture:
                return self.fail(
                    self.codes.CAPTURE_DEPENDENCY,
                    f"event {event} was recorded in a capture that is over",
                )
            # The waiting stream joins the capture, or the recording one joins it.
            capture.streams.add(stream)
            capture.unjoined.discard(record.stream)
            capture.unjoined.add(stream)
            return 0

        def ready() -> bool:
            last = record or self._events.get(event)
            return last is not None and last.done

        self.launch(stream, Task(f"wait for event {event}", _nothing, ready, (here(),)))
        return 0

    def event_reset(self, event: int, stream: int) -> int:
        def run() -> None:
            self._events[event] = None

        self.launch(stream, Task(f"reset of event {event}", run))
        return 0

    def event_synchronize(self, event: int) -> int:
        record = self._events[event]
        if record is not None and record.graph is not None:
            return self.fail(self.codes.EVENT_CAPTURED, f"event {event} is captured")
        if record is None or record.done:
            return self._forbidden("to wait for an event")
        return self._forbidden("to wait for an event") or self._wait([record.stream])

    def event_query(self, event: int, out: int) -> int:
        record = self._events[event]
        # ACL_EVENT_RECORDED_STATUS_COMPLETE is 1; one never recorded is complete.
        done = record is None or record.done
        ctypes.c_int32.from_address(out).value = int(done)
        return 0

    def value_write(self, address: int, value: int, _flag: int, stream: int) -> int:
        def run() -> None:
            _word(address).value = value

        self.launch(stream, Task(f"write of {value} to {address:#x}", run))
        return 0

    def value_wait(self, address: int, value: int, flag: int, stream: int) -> int:
        # https://www.hiascend.com/document/detail/en/canncommercial/850/ aclrtValueWait
        tests = (
            lambda word: ctypes.c_int64(word - value).value >= 0,
            lambda word: word == value,
            lambda word: (word & value) != 0,
            lambda word: ctypes.c_uint64(~(word | value)).value != 0,
        )
        if flag >= len(tests):
            return self.fail(self.codes.PARAM_INVALID, f"no comparison {flag}")

        def ready() -> bool:
            return tests[flag](_word(address).value)

        what = f"wait for the value {value} at {address:#x}"
        self.launch(stream, Task(what, _nothing, ready, (here(),)))
        return 0

    # ---- running

    def _pump(self) -> bool:
        """Run all tasks that can run; whether any did."""
        any_ran = False
        ran = True
        while ran:
            ran = False
            for queue in list(self._streams.values()):
                while queue and (queue[0].ready is None or queue[0].ready()):
                    self._run(queue.popleft())
                    ran = any_ran = True
        if any_ran:
            self._changed.notify_all()
        return any_ran

    def _run(self, task: Task) -> None:
        self.executed += 1
        try:
            task.run()
        except Exception:
            self._failures.append(f"{task.what} failed:\n{traceback.format_exc()}")
            print(self._failures[-1], file=sys.stderr)

    def _wait(self, streams: list[int]) -> int:
        """Until ``streams`` are empty; tasks of other threads may free them."""
        with self._changed:
            limit = time.monotonic() + DEADLOCK_SECONDS
            while True:
                if self._pump():
                    limit = time.monotonic() + DEADLOCK_SECONDS
                if not any(self._streams.get(stream) for stream in streams):
                    break
                left = limit - time.monotonic()
                if left <= 0:
                    return self._deadlock(streams)
                self._changed.wait(min(left, 0.02))
        if self._failures:
            text = "\n".join(self._failures)
            self._failures.clear()
            return self.fail(self.codes.AICORE_EXCEPTION, text)
        return 0

    def _deadlock(self, streams: list[int]) -> int:
        lines = []
        for stream in streams:
            if queue := self._streams.get(stream):
                lines.append(f"deadlock: stream {stream} is at a {queue[0].what}")
                lines += [f"called at\n{stack}" for stack in queue[0].stacks]
                # Left there, they would block whatever comes next.
                lines.append(f"{len(queue)} tasks of the stream are dropped")
                queue.clear()
        lines.append(f"while this waits for the stream\n{here()}")
        return self.fail(self.codes.STREAM_SYNC_TIMEOUT, "\n".join(lines))

    def _forbidden(self, what: str) -> int:
        """The code of what a capture forbids, by its mode and the calling thread's."""
        capture = self.capture
        mine = getattr(self._mode, "value", _CAPTURE_MODE_GLOBAL)
        if capture is None or _CAPTURE_MODE_RELAXED in (mine, capture.mode):
            return 0
        if capture.mode != _CAPTURE_MODE_GLOBAL and capture.thread != threading.get_ident():
            return 0
        return self.fail(
            self.codes.CAPTURE_MODE_NOT_SUPPORT,
            f"a stream is captured: not permitted {what}\n{here()}",
        )

    # ---- memory and graphs

    def free(self, address: int, size: int) -> int:
        for graph in self.graphs.values():
            if any(s < address + size and address < e for s, e in graph.memory):
                graph.broken = f"memory of graph {graph.number} was freed at\n{here()}"
        return 0

    def capture_begin(self, stream: int, mode: int) -> int:
        if self.capture is not None:
            return self.fail(
                self.codes.STREAM_CAPTURED, f"stream {self.capture.origin} is captured already"
            )
        if stream == 0:
            return self.fail(
                self.codes.STREAM_CAPTURE_IMPLICIT, "the default stream cannot be captured"
            )
        number = next(self._numbers)
        self.capture = Graph(number, stream, mode, threading.get_ident(), {stream})
        return 0

    def capture_info(self, stream: int, status: int, graph: int) -> int:
        captured = self.is_captured(stream)
        ctypes.c_int32.from_address(status).value = int(captured)
        if graph:
            _store(graph, self.capture.number if captured else 0)
        return 0

    def capture_end(self, stream: int, out: int) -> int:
        capture, self.capture = self.capture, None
        group, self._group = self._group, None
        if capture is None:
            return self.fail(self.codes.STREAM_NOT_CAPTURED, "no stream is captured")
        if capture.origin != stream:
            return self.fail(
                self.codes.STREAM_CAPTURE_UNMATCHED,
                f"the capture began on stream {capture.origin}, not {stream}",
            )
        if group is not None:
            return self.fail(self.codes.STREAM_TASK_GROUP_STATUS, "a task group is open")
        if unjoined := capture.unjoined - {stream}:
            return self.fail(
                self.codes.STREAM_UNJOINED,
                f"no captured stream waits for the last tasks of streams {sorted(unjoined)}",
            )
        used = sum(len(graph.streams) for graph in self.graphs.values())
        if used + len(capture.streams) > GRAPH_STREAMS:
            return self.fail(
                self.codes.NO_STREAM_RESOURCE,
                f"{len(self.graphs)} graphs use {used} of {GRAPH_STREAMS} streams",
            )
        self.graphs[capture.number] = capture
        _store(out, capture.number)
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
        with self._changed:
            self.launches += 1
            self._streams[stream] += [_replayed(task, replay) for task in graph.tasks]
            self._pump()
        return 0

    def graph_destroy(self, number: int) -> int:
        self.graphs.pop(number, None)
        return 0

    def group_begin(self, stream: int) -> int:
        if not self.is_captured(stream):
            return self.fail(
                self.codes.STREAM_NOT_CAPTURED, f"stream {stream} is not captured"
            )
        if self._group is not None:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS, "a task group is open already"
            )
        self._group = Group(stream)
        return 0

    def group_end(self, stream: int, out: int) -> int:
        if self._group is None or self._group.stream != stream:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS, f"no task group on stream {stream}"
            )
        number = next(self._numbers)
        self._groups[number], self._group = self._group, None
        _store(out, number)
        return 0

    def update_begin(self, stream: int, group: int) -> int:
        if group not in self._groups or stream in self.updates:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS,
                f"no task group {group}, or stream {stream} is updating one",
            )
        self.updates[stream] = list(self._groups[group].operators)
        return 0

    def update_end(self, stream: int) -> int:
        left = self.updates.pop(stream, None)
        if left is None or left:
            return self.fail(
                self.codes.STREAM_TASK_GROUP_STATUS,
                f"the update left {left if left is None else len(left)} operators as captured",
            )
        return 0


def _replayed(task: Task, stack: Stack) -> Task:
    if task.ready is None:
        return task
    return Task(f"{task.what}, in a graph", task.run, task.ready, (*task.stacks, stack))


def _nothing() -> None:
    pass


def _store(address: int, value: int) -> None:
    _word(address).value = value


def _word(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(address)


def _move(to: int, source: int, size: int) -> None:
    ctypes.memmove(to, source, size)


def _set(to: int, byte: int, size: int) -> None:
    ctypes.memset(to, byte, size)
