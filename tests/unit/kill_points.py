"""Ends a process at its n-th call that touches a disk, for every n a test asks for.

The calls are counted in a forked child, by replacing functions of ``os``: the code
under test knows nothing of it.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

# Every function through which the kit changes a file system.
CALLS = (
    *("link", "rename", "unlink", "mkdir", "rmdir", "open", "fdopen"),
    *("fchmod", "fchown", "fsync", "utime", "setxattr"),
)
PASSED = 0
FAILED = 1


def run_until(limit: int, action: Callable[[], object]) -> tuple[bool, int]:
    """Run ``action`` in a child that SIGKILL ends before call ``limit`` (0: never).

    Returns whether it was killed, and how many calls it made if it was not. An
    exception of ``action`` fails the test.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = FAILED
        try:
            counter = _count(limit)
            action()
            os.write(writer, str(next(counter)).encode())
            code = PASSED
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (PASSED, -signal.SIGKILL), f"call {limit}: exit {code}"
    return code != PASSED, int(said or 0)


def _count(limit: int) -> Iterator[int]:
    seen = [0]

    def counted(real):
        def call(*args, **kwargs):
            seen[0] += 1
            if seen[0] == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    return iter(lambda: seen[0], None)
