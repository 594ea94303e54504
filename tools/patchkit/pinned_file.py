"""One file of the package index in the cache, by its name and its digest."""

from __future__ import annotations

import contextlib
from pathlib import Path

from patchkit.cache import cache_folder, whole_file
from patchkit.errors import EnvironmentProblem
from patchkit.package_index import PackageIndex, file_sha256


def fetch_pinned(
    project: str, file: str, sha256: str, folder: str, *, offline: bool = False
) -> Path:
    """The path of the pinned file in ``folder`` of the cache; fetched where missing.

    A cached file with another digest is fetched again. Raises EnvironmentProblem when
    it cannot be had, or when what came is not the pinned file.
    """
    path = cache_folder(folder) / file
    damaged = path.exists()
    with contextlib.suppress(OSError):
        if file_sha256(path) == sha256:
            return path
    if offline:
        what = "is damaged" if damaged else "is not in the cache"
        raise EnvironmentProblem(
            f"{file} {what} ({path}), and --offline forbids a download",
            hint="run the same command once without --offline",
        )
    with whole_file(path) as unfinished:
        PackageIndex().fetch(project, file, sha256, unfinished)
    return path
