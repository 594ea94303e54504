"""The per-user cache: where it is, and writes that leave no half file behind."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from patchkit.errors import EnvironmentProblem

APPLICATION = "vllm-patchkit"


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
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentProblem(
                f"the disk is full: {path} could not be written",
                hint="free some space, or set XDG_CACHE_HOME to another disk",
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            raise EnvironmentProblem(
                f"cannot write {path}: {error.strerror}",
                hint="set XDG_CACHE_HOME to a folder that can be written",
            ) from None
        raise


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, renamed to it when the body succeeds.

    Whatever ends the body early, Ctrl-C included, the temporary file is removed.
    """
    with disk_problems(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        partial = Path(name)
        try:
            yield partial
            partial.chmod(0o644)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
