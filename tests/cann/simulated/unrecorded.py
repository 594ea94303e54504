"""Keeps what the test bed itself runs on the CPU out of torch's profiles."""

from __future__ import annotations

import threading

from torch._C._autograd import _enable_record_function


class _Unrecorded(threading.local):
    """A context in which operators of this thread are no events; it may be nested."""

    _depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:
            _enable_record_function(False)
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            _enable_record_function(True)


unrecorded = _Unrecorded()
