"""Files of a pinned sdist, kept unpacked in the cache: opening it takes a second."""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchkit.blob import blob_id
from patchkit.cache import (
    cache_folder,
    disk_problems,
    read_sealed,
    whole_file,
    write_sealed,
)
from patchkit.errors import EnvironmentProblem
from patchkit.file_state import FileState, UnsafePath, checked_parts

LINK = -1  # stands for a mode in the index: the sdist has a link or device there
_EXECUTABLE = 0o111
INDEX = "index.json"


class Extract:
    """The files of one sdist that were asked for so far, in a folder of their own.

    Beside them lies an index. It has every member's mode, so that an absent path is
    known to be absent, and the blob id of each kept file, so that a damaged one is
    noticed and unpacked again. The index begins with its own SHA-256; a damaged one
    is made anew. ``archive`` gives the path of the sdist, when it must be opened.
    """

    def __init__(self, key: str, archive: Callable[[], Path]) -> None:
        self._folder = cache_folder("extracts", key)
        self._archive = archive
        self._members, self._blobs = self._read_index()
        self._folders: set[str] | None = None

    def _read_index(self) -> tuple[dict[str, int], dict[str, str]]:
        if (text := read_sealed(self._folder / INDEX)) is not None:
            index = json.loads(text)
            return index["members"], index["blobs"]
        return {}, {}

    def _write_index(self) -> None:
        index = {"members": self._members, "blobs": self._blobs}
        text = json.dumps(index, separators=(",", ":")).encode()
        write_sealed(self._folder / INDEX, text)

    def file(self, path: str) -> Path:
        """Where a member is kept. Paths of an sdist are relative and plain."""
        return self._folder.joinpath("files", *checked_parts(path))

    def need(self, paths: Iterable[str]) -> None:
        """Unpack those of ``paths`` that the sdist has and the extract lacks."""
        missing = {
            path
            for path in paths
            if not self._members
            or (self._members.get(path, LINK) != LINK and self._kept(path) is None)
        }
        if missing:
            self._unpack(missing)

    def read(self, path: str) -> FileState | None:
        """A member's bytes and git mode; None when the sdist has no such file.

        Raises UnsafePath as ``Source.read`` does.
        """
        checked_parts(path)
        if not self._members:
            self.need([path])
        self._check_kind(path)
        if path not in self._members:
            return None
        data = self._kept(path)
        if data is None:
            self._unpack({path})
            data = self._kept(path)
        if data is None:
            raise EnvironmentProblem(
                f"{self.file(path)}: changed while it was read",
                hint="type the same command again",
            )
        executable = self._members[path] & _EXECUTABLE
        return FileState(data, 0o100755 if executable else 0o100644)

    def find_name(self, name: str, near: str = "") -> Sequence[str]:
        """Return the paths whose last component is ``name``, those near first."""
        found = [path for path in self._members if path.rpartition("/")[2] == name]
        return sorted(found, key=lambda path: (not path.startswith(near), path))

    def _check_kind(self, path: str) -> None:
        if self._folders is None:
            self._folders = set()
            for member in self._members:
                # Up to a folder seen before: pathlib would take 80 ms for them all.
                for folder in _above(member):
                    if folder in self._folders:
                        break
                    self._folders.add(folder)
        if path in self._folders:
            raise UnsafePath(path, path, "not-regular")
        for part in (path, *_above(path)):
            mode = self._members.get(part)
            if mode == LINK:
                raise UnsafePath(path, part, "symlink")
            if mode is not None and part != path:
                raise UnsafePath(path, part, "parent-is-file")

    def _kept(self, path: str) -> bytes | None:
        wanted = self._blobs.get(path)
        if wanted is None:
            return None
        try:
            data = self.file(path).read_bytes()
        except OSError:
            return None
        return data if blob_id(data) == wanted else None

    def _unpack(self, paths: set[str]) -> None:
        # Another process may have unpacked further files since.
        self._blobs = {**self._read_index()[1], **self._blobs}
        self._members, self._folders = {}, None
        with open_sdist(self._archive()) as members:
            for path, member, read in members:
                self._members[path] = member.mode if member.isfile() else LINK
                if path in paths and member.isfile():
                    data = read()
                    self._blobs[path] = blob_id(data)
                    self._keep(path, data)
        self._write_index()

    def _keep(self, path: str, data: bytes) -> None:
        target = self.file(path)
        with disk_problems(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            partial.write_bytes(data)


def _above(path: str) -> Iterator[str]:
    """The folders that hold a relative path, the nearest first."""
    while path := path.rpartition("/")[0]:
        yield path


Member = tuple[str, tarfile.TarInfo, Callable[[], bytes]]


@contextmanager
def open_sdist(archive: Path) -> Iterator[Iterator[Member]]:
    """Each member below the sdist's top folder but folders: path, entry, its bytes.

    Nothing is written, so a hostile name harms nothing; such names are left out.
    Raises EnvironmentProblem, also out of the iteration, when this is no sdist.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            yield _members(tar)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise EnvironmentProblem(
            f"{archive}: no sdist: {error}", hint="remove it and try again"
        ) from None


def _members(tar: tarfile.TarFile) -> Iterator[Member]:
    for member in tar:
        parts = member.name.split("/")
        unsafe = {"", ".", ".."} & set(parts) or "\0" in member.name
        if member.isdir() or len(parts) < 2 or unsafe:
            continue

        def read(member: tarfile.TarInfo = member) -> bytes:
            file = tar.extractfile(member)
            assert file is not None
            return file.read()

        yield "/".join(parts[1:]), member, read
