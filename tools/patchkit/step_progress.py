"""Progress of a step that takes long: a spinner on a terminal, else lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator


@contextlib.contextmanager
def step_progress(what: str) -> Iterator[None]:
    """Say on standard error that ``what`` begins, and how long it took."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    began = time.monotonic()
    if console.is_terminal:
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        ) as progress:
            progress.add_task(what, total=None)
            yield
    else:
        print(what, file=sys.stderr, flush=True)
        yield
    print(f"done in {time.monotonic() - began:.0f} s: {what}", file=sys.stderr)
