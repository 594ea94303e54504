"""Progress of a download: a bar on a terminal, else a line at each end."""

from __future__ import annotations

import sys
from types import TracebackType


class TransferProgress:
    """A progress bar on standard error; ``total`` in bytes, None when unknown."""

    def __init__(self, name: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._name = name
        self._total = total
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> TransferProgress:
        self._bar.start()
        self._task = self._bar.add_task(self._name, total=self._total)
        if not self._console.is_terminal:
            size = f", {self._total / 1e6:.0f} MB" if self._total else ""
            print(f"downloading {self._name}{size}", file=sys.stderr, flush=True)
        return self

    def update(self, increment: int) -> None:
        """Count ``increment`` more bytes."""
        self._bar.update(self._task, advance=increment)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if kind is None and not self._console.is_terminal:
            print(f"downloaded {self._name}", file=sys.stderr, flush=True)
