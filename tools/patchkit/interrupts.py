"""Signals that ask a write to end: the first undoes it, later ones do not stop that."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Turns the first signal into KeyboardInterrupt; once held, none."""

    def __init__(self) -> None:
        self._held = False

    def hold(self) -> None:
        """From here on what is going on is short, and ends better than broken off."""
        self._held = True

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if not self._held:
            self._held = True
            raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Catch Ctrl-C, SIGTERM and a terminal's end (SIGHUP) while the block runs.

    Those that are ignored (``nohup``) stay so. Outside the main thread, where Python
    handles no signals, this does nothing.
    """
    handler = Interrupts()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
    try:
        yield handler
    finally:
        for number, old in before.items():
            signal.signal(number, old)
