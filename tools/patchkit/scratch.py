"""Folders for a while, in which this kit and the programs it starts can work."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchkit.errors import EnvironmentProblem

_HINT = "set TMPDIR to a folder that can be written and has some space"


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """A new empty folder, removed at the end; raises EnvironmentProblem without one.

    A umask that takes the owner's own rights (0177) is put aside meanwhile: folders
    that git and ruff make there have to be entered.
    """
    mask = os.umask(0o077)
    try:
        try:
            folder = tempfile.TemporaryDirectory(
                prefix=f"vllm-patchkit-{purpose}-", ignore_cleanup_errors=True
            )
        except OSError as error:
            raise EnvironmentProblem(
                f"no folder for temporary files: {error.strerror}", hint=_HINT
            ) from None
        with folder as name:
            try:
                yield Path(name)
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if full or str(error.filename or "").startswith(name):
                    reason = os.strerror(error.errno or errno.EIO)
                    raise EnvironmentProblem(f"{name}: {reason}", hint=_HINT) from None
                raise
    finally:
        os.umask(mask)
