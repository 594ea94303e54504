"""The per-user cache: where it is, and writes that leave no half file behind."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from patchkit.errors import EnvironmentProblem

APPLICATION = "vllm-patchkit"
LEFTOVER_SECONDS = 24 * 3600


def cache_folder(*parts: str) -> Path:
    """A folder of the cache, made if it is missing.

    Follows XDG: ``$XDG_CACHE_HOME/vllm-patchkit`` where that is set. Raises
    EnvironmentProblem when it cannot be made or written.
    """
    folder = platformdirs.user_cache_path(APPLICATION).joinpath(*parts)
    with disk_problems(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def disk_problems(path: Path) -> Iterator[None]:
    """Turn an OSError of a write into one clear line that names ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        ours = path.is_relative_to(platformdirs.user_cache_path(APPLICATION))
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            elsewhere = ", or set XDG_CACHE_HOME to another disk" if ours else ""
            raise EnvironmentProblem(
                f"the disk is full: {path} could not be written",
                hint=f"free some space{elsewhere}",
            ) from None
        raise EnvironmentProblem(
            f"cannot write {path}: {os.strerror(error.errno)}",
            hint="set XDG_CACHE_HOME to a folder that can be written" if ours else "",
        ) from None


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, renamed to it when the body succeeds.

    Whatever ends the body early, Ctrl-C included, the temporary file is removed. Two
    processes may write one path at once: each has its own temporary file, and the
    rename is one step. What a killed process left here a day ago is removed.
    """
    with disk_problems(path):
        prefix = f".{path.name}."
        _remove_leftovers(path.parent, prefix)
        handle, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
        os.close(handle)
        partial = Path(name)
        try:
            yield partial
            partial.chmod(0o644)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def read_sealed(path: Path) -> bytes | None:
    """What ``write_sealed`` wrote to ``path``; None where that is not there whole."""
    try:
        checksum, _, data = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest().encode() == checksum else None


def write_sealed(path: Path, data: bytes) -> None:
    """Write ``data`` with its checksum before it. Raises as ``whole_file`` does."""
    with whole_file(path) as unfinished:
        unfinished.write_bytes(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


def _remove_leftovers(folder: Path, prefix: str) -> None:
    for entry in folder.iterdir():
        if entry.name.startswith(prefix):
            with contextlib.suppress(OSError):
                if time.time() - entry.stat().st_mtime > LEFTOVER_SECONDS:
                    entry.unlink()
