"""Pinned sources: the sdist in the cache, and of it the files that a series touches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from patchkit.blob import blob_id
from patchkit.extract import Extract
from patchkit.file_state import FileState
from patchkit.pinned_file import fetch_pinned
from patchkit.releases import Release, Sdist

PROJECT_NAME = "vllm"
RUFF_CONFIG = "pyproject.toml"


def open_source(
    release: Release,
    *,
    version: str | None = None,
    offline: bool = False,
    paths: Sequence[str] = (),
) -> SdistSource:
    """The pinned source of one accepted version, with ``paths`` extracted.

    Downloads the sdist on first use. Raises EnvironmentProblem when it is not in the
    cache and cannot be fetched, or when what came is not the pinned file.
    """
    sdist = release.find_sdist(version or release.versions[0])
    extract = Extract(sdist.sha256, partial(fetch_sdist, sdist, offline=offline))
    extract.need([*paths, RUFF_CONFIG])
    return SdistSource(sdist, extract)


def fetch_sdist(sdist: Sdist, *, offline: bool = False) -> Path:
    """The path of the pinned sdist in the cache; fetched, and its digest checked.

    A cached file with another digest is fetched again. Raises EnvironmentProblem.
    """
    return fetch_pinned(
        PROJECT_NAME, sdist.file, sdist.sha256, "sdists", offline=offline
    )


class SdistSource:
    """The pinned files as a ``Source`` for plans."""

    def __init__(self, sdist: Sdist, extract: Extract) -> None:
        self._extract = extract
        self.version = sdist.version
        self.label = sdist.file

    def read(self, path: str) -> FileState | None:
        """The file's bytes and mode in the sdist, None where it is absent."""
        return self._extract.read(path)

    def find_name(self, name: str, near: str = "") -> Sequence[str]:
        """Paths of the sdist whose last component is ``name``; see ``Finder``."""
        return self._extract.find_name(name, near)

    def blob(self, path: str) -> str | None:
        """The file's blob id, None where it is absent."""
        state = self.read(path)
        return None if state is None else blob_id(state.data)

    def file(self, path: str) -> Path:
        """Where the cache keeps a file that was named in ``open_source``."""
        return self._extract.file(path)

    @property
    def ruff_config(self) -> Path:
        """Upstream's pyproject.toml, unpacked."""
        return self._extract.file(RUFF_CONFIG)
