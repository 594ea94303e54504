"""The frame every command runs in: exit codes, one clear line, a log for own bugs."""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from patchkit.diff_paths import shown
from patchkit.errors import EXIT_BUG, EXIT_USAGE, KitError

Main = Callable[[Sequence[str] | None], int]


def run(main: Main, argv: Sequence[str] | None = None) -> int:
    """Call ``main`` and turn what it raises into an exit code and one line.

    A ``KitError`` prints its message and hint on standard error and gives its own
    exit code. Anything else is the kit's own bug: the traceback goes to a log file
    whose path is printed, exit 3. A closed pipe is no error of the command.
    """
    program = Path(sys.argv[0]).name
    if sys.stdout is None:
        # Closed by the caller (`>&-`): what is printed goes nowhere.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    elif isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A file's name may have bytes, and a locale lack letters, that do not print.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = main(argv)
        sys.stdout.flush()
        return code
    except KitError as error:
        _say(f"{program}: {error}")
        if error.hint:
            _say(f"{program}: hint: {error.hint}")
        return error.exit_code
    except BrokenPipeError:
        # The reader went away (`| head`).
        _drop_output()
        return 0
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
            # Writes of files name their file; this was one to standard output.
            _drop_output()
            print(
                f"{program}: what was done stands, but the report could not be "
                f"written: {error.strerror}",
                file=sys.stderr,
            )
            return EXIT_USAGE
        _say(
            f"{program}: a bug of the kit, not of your input: "
            f"{type(error).__name__}: {error}; traceback in {_traceback_file()}"
        )
        return EXIT_BUG


def _say(text: str) -> None:
    """One line on standard error; what is quoted in it cannot act on the terminal."""
    print(shown(text), file=sys.stderr)


def _traceback_file() -> str:
    """Where the traceback of the exception in hand is written, in words."""
    try:
        handle, log = tempfile.mkstemp(prefix="vllm-patchkit-bug-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            traceback.print_exc(file=file)
        return log
    except OSError:
        traceback.print_exc()
        return "the lines above, since no temporary file can be written"


def _drop_output() -> None:
    """Keep the interpreter's own flush at exit from failing again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
