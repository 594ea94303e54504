"""Pinned sources: the sdist in the cache, and of it the files that a series touches."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchkit.blob import blob_id
from patchkit.cache import cache_folder, disk_problems, whole_file
from patchkit.errors import EnvironmentProblem
from patchkit.file_state import FileState
from patchkit.package_index import PackageIndex
from patchkit.releases import Release, Sdist

PROJECT_NAME = "vllm"
RUFF_CONFIG = "pyproject.toml"
_EXECUTABLE = 0o111


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
    extract = Extract(sdist, offline=offline)
    extract.need([*paths, RUFF_CONFIG])
    return SdistSource(extract)


def fetch_sdist(sdist: Sdist, *, offline: bool = False) -> Path:
    """The path of the pinned sdist in the cache; fetched, and its digest checked.

    A cached file with another digest is fetched again. Raises EnvironmentProblem.
    """
    path = cache_folder("sdists") / sdist.file
    damaged = False
    if path.is_file():
        if _sha256(path) == sdist.sha256:
            return path
        damaged = True
    if offline:
        what = "is damaged" if damaged else "is not in the cache"
        raise EnvironmentProblem(
            f"{sdist.file} {what} ({path}), and --offline forbids a download",
            hint="run the same command once without --offline",
        )
    with whole_file(path) as partial:
        PackageIndex().fetch(PROJECT_NAME, sdist.file, sdist.sha256, partial)
        found = _sha256(partial)
        if found != sdist.sha256:
            raise EnvironmentProblem(
                f"{sdist.file}: sha256 is {found}, pinned is {sdist.sha256}",
                hint="truncated or another file; nothing was kept; try again",
            )
    return path


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass
class Extract:
    """Files of one sdist, kept unpacked: opening the archive takes a second.

    Beside the files lies an index with every member's mode, so that an absent path is
    known to be absent, and with the blob id of each file kept, so that a changed one
    is noticed and unpacked again.
    """

    sdist: Sdist
    offline: bool = False
    _index: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.folder = cache_folder("extracts", self.sdist.sha256)
        self._index = self._read_index()

    def _read_index(self) -> dict[str, Any]:
        try:
            index = json.loads((self.folder / "index.json").read_bytes())
            if isinstance(index["members"], dict) and isinstance(index["blobs"], dict):
                return dict(index)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return {"members": {}, "blobs": {}}

    def file(self, path: str) -> Path:
        """Where a member is kept. Paths of an sdist are relative and plain."""
        return self.folder / "files" / path

    def need(self, paths: Iterable[str]) -> None:
        """Unpack those of ``paths`` that the sdist has and the extract lacks."""
        members = self._index["members"]
        missing = {
            path
            for path in paths
            if not members or (path in members and self._kept(path) is None)
        }
        if missing:
            self._unpack(missing)

    def read(self, path: str) -> FileState | None:
        """A member's bytes and git mode; None when the sdist has no such file."""
        self.need([path])
        mode = self._index["members"].get(path)
        if mode is None:
            return None
        data = self._kept(path)
        if data is None:
            raise EnvironmentProblem(f"{self.file(path)}: changed while it was read")
        return FileState(data, 0o100755 if mode & _EXECUTABLE else 0o100644)

    def _kept(self, path: str) -> bytes | None:
        wanted = self._index["blobs"].get(path)
        if wanted is None:
            return None
        try:
            data = self.file(path).read_bytes()
        except OSError:
            return None
        return data if blob_id(data) == wanted else None

    def _unpack(self, paths: set[str]) -> None:
        archive = fetch_sdist(self.sdist, offline=self.offline)
        members: dict[str, int] = {}
        blobs: dict[str, str] = dict(self._index["blobs"])
        try:
            with tarfile.open(archive, "r:gz") as tar:
                for member in tar:
                    path = member_path(member)
                    if path is None:
                        continue
                    members[path] = member.mode
                    file = tar.extractfile(member) if path in paths else None
                    if file is not None:
                        data = file.read()
                        blobs[path] = blob_id(data)
                        self._keep(path, data)
        except (tarfile.TarError, EOFError) as error:
            raise EnvironmentProblem(f"{archive}: no sdist: {error}") from None
        self._index = {"members": members, "blobs": blobs}
        with whole_file(self.folder / "index.json") as partial:
            partial.write_text(json.dumps(self._index))

    def _keep(self, path: str, data: bytes) -> None:
        target = self.file(path)
        with disk_problems(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            partial.write_bytes(data)


def member_path(member: tarfile.TarInfo) -> str | None:
    """A regular member's path below the sdist's one top folder; None for others."""
    parts = member.name.split("/")
    if not member.isfile() or len(parts) < 2 or {"", ".", ".."} & set(parts):
        return None
    return "/".join(parts[1:])


class SdistSource:
    """The pinned files as a ``Source`` for plans."""

    def __init__(self, extract: Extract) -> None:
        self._extract = extract
        self.version = extract.sdist.version
        self.label = extract.sdist.file

    def read(self, path: str) -> FileState | None:
        """The file's bytes and mode in the sdist, None where it is absent."""
        return self._extract.read(path)

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
