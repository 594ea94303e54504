"""Disks that are full or read-only, for real, where this user may mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

Need = Callable[[bool, str], None]


def _run(*command: str) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int, need: Need) -> Iterator[Path]:
    """Mount a tmpfs of this size on ``folder``, which is made."""
    folder.mkdir(parents=True)
    size = f"size={kilobytes}k"
    mounted = os.geteuid() == 0 and _run(
        "mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)
    )
    need(mounted, "a tmpfs can be mounted by root alone")
    try:
        yield folder
    finally:
        _run("umount", str(folder))


@contextlib.contextmanager
def read_only(folder: Path, need: Need) -> Iterator[Path]:
    """Make an existing folder read-only: by its mode or, for root, by a mount."""
    if os.geteuid() != 0:
        folder.chmod(0o555)
        try:
            yield folder
        finally:
            folder.chmod(0o755)
        return
    path = str(folder)
    mounted = _run("mount", "--bind", path, path)
    mounted = mounted and _run("mount", "-o", "remount,bind,ro", path)
    need(mounted, "root may not mount here, and no mode stops root")
    try:
        yield folder
    finally:
        _run("umount", path)
