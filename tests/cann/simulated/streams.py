"""The simulated devices' streams and events: who runs when.

A stream runs its tasks in order. A task runs as soon as all before it have run and, for
a wait, what it waits for is there: without a wait that is during the call itself.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Literal

from simulated.error_codes import DeviceError, ErrorCodes
from simulated.host_memory import fill_bytes, move_bytes, store, word_at
from simulated.tasks import Graph, Group, Record, Task, here

ALL_STREAMS = 2048
# What the host launches: an operator, copy or collective; a record, wait or reset of an
# event or value; a replay of a graph; an update of a task group.
Launch = Literal["task", "event", "graph", "update"]
# A wait whose record has not come by then, with no task running, is a deadlock.
DEADLOCK_SECONDS = 0.5


class Streams:
    """Streams, events and values in memory; what is public answers cann_runtime.c.

    Each of those calls returns an error code, 0 for none.
    """

    def __init__(self, codes: ErrorCodes, set_error: Callable[[str], None]) -> None:
        self.codes = codes
        self.executed = 0
        self.launches: Counter[Launch] = Counter()
        self.capture: Graph | None = None
        self.graphs: dict[int, Graph] = {}
        self.updates: dict[int, list] = {}
        self.error = ""
        self._set_error = set_error
        self.changed = threading.Condition(threading.RLock())
        self.streams: dict[int, deque[Task]] = {0: deque()}
        self._events: dict[int, Record | None] = {}
        self.group: Group | None = None
        self.numbers = iter(range(1, 1 << 62))
        self._failures: list[str] = []

    # ---- what the executor of operators asks

    def is_captured(self, stream: int) -> bool:
        return self.capture is not None and stream in self.capture.streams

    def is_idle(self, stream: int) -> bool:
        return not self.streams[stream]

    def launch(self, stream: int, task: Task, kind: Launch = "task") -> None:
        """Append a task to the graph being captured on ``stream``, or to the stream."""
        with self.changed:
            if self.capture is not None and stream in self.capture.streams:
                self.capture.tasks.append(task)
                self.capture.unjoined.add(stream)
            else:
                self.launches[kind] += 1
                self.streams[stream].append(task)
                self.pump()

    def note_operator(self, operator: object) -> None:
        """An operator is captured, in the task group that is open."""
        if self.capture is not None:
            self.capture.operators.append(operator)
        if self.group is not None:
            self.group.operators.append(operator)

    def note_memory(self, ranges: Iterable[tuple[int, int]]) -> None:
        if self.capture is not None:
            self.capture.memory.update(ranges)

    def host_reads(self, what: str, stream: int) -> None:
        """Wait for ``stream``, as ``what`` reads its result on the host.

        Raises DeviceError while a capture forbids it, on a deadlock, and for a task
        that failed.
        """
        if code := self.stream_synchronize(stream, 0):
            raise DeviceError(
                code, f"{what} reads device memory on the host: {self.error}"
            )

    def forbidden(self, what: str) -> int:
        """The code with which a capture forbids ``what``, 0 where it does not."""
        raise NotImplementedError

    def fail(self, code: int, text: str) -> int:
        """Keep ``text`` for aclGetRecentErrMsg and return ``code``."""
        self.error = text
        self._set_error(text)
        return code

    # ---- streams

    def stream_create(self, out: int) -> int:
        used = len(self.streams) + sum(len(g.streams) for g in self.graphs.values())
        if used >= ALL_STREAMS:
            return self.fail(
                self.codes.NO_STREAM_RESOURCE, f"all {ALL_STREAMS} streams are in use"
            )
        number = next(self.numbers)
        self.streams[number] = deque()
        store(out, number)
        return 0

    def stream_destroy(self, stream: int, force: int) -> int:
        if not force and self.streams[stream]:
            return self.fail(
                self.codes.STREAM_NOT_COMPLETE, f"stream {stream} has tasks left"
            )
        del self.streams[stream]
        return 0

    def stream_query(self, stream: int, out: int) -> int:
        # ACL_STREAM_STATUS_COMPLETE is 0, NOT_READY 1.
        ctypes.c_int32.from_address(out).value = int(bool(self.streams[stream]))
        return 0

    def stream_synchronize(self, stream: int, _timeout: int) -> int:
        if self.is_captured(stream):
            return self.fail(
                self.codes.STREAM_CAPTURED,
                f"stream {stream} is captured: no waiting for it",
            )
        return self.forbidden("to wait for a stream") or self._wait([stream])

    def device_synchronize(self, _timeout: int) -> int:
        if self.capture is not None:
            return self.forbidden("to wait for the device") or self.fail(
                self.codes.STREAM_CAPTURED, "a stream of the device is captured"
            )
        return self._wait(list(self.streams))

    def copy_now(self) -> int:
        return self.forbidden("to copy at once")

    def copy(self, to: int, source: int, size: int, stream: int) -> int:
        self.note_memory([(to, to + size), (source, source + size)])
        self.launch(stream, Task("copy", lambda: move_bytes(to, source, size)))
        return 0

    def fill(self, to: int, value: int, size: int, stream: int) -> int:
        byte = value & 0xFF
        self.note_memory([(to, to + size)])
        self.launch(stream, Task("fill", lambda: fill_bytes(to, byte, size)))
        return 0

    def host_function(self, function: int, argument: int, stream: int) -> int:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        self.launch(stream, Task("host function", lambda: call(argument)))
        return 0

    # ---- events and values

    def event_create(self, out: int, _flag: int) -> int:
        number = next(self.numbers)
        self._events[number] = None
        store(out, number)
        return 0

    def event_destroy(self, event: int) -> int:
        self._events.pop(event, None)
        return 0

    def event_record(self, event: int, stream: int) -> int:
        graph = self.capture if self.is_captured(stream) else None
        record = self._events[event] = Record(stream, graph)

        def run() -> None:
            record.done = True

        self.launch(stream, Task(f"record of event {event}", run), "event")
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

        wait = Task(f"wait for event {event}", _nothing, ready, (here(),))
        self.launch(stream, wait, "event")
        return 0

    def event_reset(self, event: int, stream: int) -> int:
        def run() -> None:
            self._events[event] = None

        self.launch(stream, Task(f"reset of event {event}", run), "event")
        return 0

    def event_synchronize(self, event: int) -> int:
        record = self._events[event]
        if record is not None and record.graph is not None:
            return self.fail(self.codes.EVENT_CAPTURED, f"event {event} is captured")
        if record is None or record.done:
            return self.forbidden("to wait for an event")
        return self.forbidden("to wait for an event") or self._wait([record.stream])

    def event_query(self, event: int, out: int) -> int:
        record = self._events[event]
        # ACL_EVENT_RECORDED_STATUS_COMPLETE is 1; one never recorded is complete.
        done = record is None or record.done
        ctypes.c_int32.from_address(out).value = int(done)
        return 0

    def value_write(self, address: int, value: int, _flag: int, stream: int) -> int:
        def run() -> None:
            word_at(address).value = value

        self.launch(stream, Task(f"write of {value} to {address:#x}", run), "event")
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
            return tests[flag](word_at(address).value)

        what = f"wait for the value {value} at {address:#x}"
        self.launch(stream, Task(what, _nothing, ready, (here(),)), "event")
        return 0

    # ---- running

    def pump(self) -> bool:
        """Run all tasks that can run; whether any did."""
        any_ran = False
        ran = True
        while ran:
            ran = False
            for queue in list(self.streams.values()):
                while queue and (queue[0].ready is None or queue[0].ready()):
                    self._run(queue.popleft())
                    ran = any_ran = True
        if any_ran:
            self.changed.notify_all()
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
        with self.changed:
            limit = time.monotonic() + DEADLOCK_SECONDS
            while True:
                if self.pump():
                    limit = time.monotonic() + DEADLOCK_SECONDS
                if not any(self.streams.get(stream) for stream in streams):
                    break
                left = limit - time.monotonic()
                if left <= 0:
                    return self._deadlock(streams)
                self.changed.wait(min(left, 0.02))
        if self._failures:
            text = "\n".join(self._failures)
            self._failures.clear()
            return self.fail(self.codes.AICORE_EXCEPTION, text)
        return 0

    def _deadlock(self, streams: list[int]) -> int:
        lines = []
        for stream in streams:
            if queue := self.streams.get(stream):
                lines.append(f"deadlock: stream {stream} is at a {queue[0].what}")
                lines += [f"called at\n{stack}" for stack in queue[0].stacks]
                # Left there, they would block whatever comes next.
                lines.append(f"{len(queue)} tasks of the stream are dropped")
                queue.clear()
        lines.append(f"while this waits for the stream\n{here()}")
        return self.fail(self.codes.STREAM_SYNC_TIMEOUT, "\n".join(lines))


def _nothing() -> None:
    pass
