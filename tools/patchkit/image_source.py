"""Files of an image, read out of a container that is created and never started."""

from __future__ import annotations

import contextlib
import os
import posixpath
import secrets
import socket
import stat
import tarfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchkit.errors import EnvironmentProblem
from patchkit.file_state import (
    EXECUTABLE,
    REGULAR,
    FileState,
    UnsafePath,
    checked_parts,
)

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container
    from docker.models.images import Image


# Names of containers that only exist while an image is read or made.
_PREFIX = "vllm-patchkit-temporary"


@dataclass(frozen=True)
class Metadata:
    """Permission bits, owner, group, and the time in seconds of one path."""

    mode: int
    uid: int
    gid: int
    mtime: int


@contextlib.contextmanager
def created_container(client: docker.DockerClient, image: Image) -> Iterator[Container]:
    """A container of ``image``, not started, removed at the end whatever happens.

    Containers of earlier runs on this machine that were killed are removed first.
    Raises EnvironmentProblem when the engine cannot create one.
    """
    from docker.errors import APIError

    _remove_leftovers(client)
    config = image.attrs["Config"]
    has_command = config.get("Cmd") or config.get("Entrypoint")
    try:
        container = client.containers.create(
            str(image.id),
            # Only an image without any command needs one to be created at all.
            command=None if has_command else ["/none"],
            name=f"{_PREFIX}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}",
            detach=True,
        )
    except APIError as error:
        raise EnvironmentProblem(
            f"the engine cannot create a container: {error.explanation}"
        ) from None
    try:
        yield container
    finally:
        with contextlib.suppress(APIError):
            container.remove(force=True, v=True)


def _remove_leftovers(client: docker.DockerClient) -> None:
    from docker.errors import APIError

    for container in client.containers.list(all=True, filters={"name": _PREFIX}):
        prefix, _, rest = str(container.name).partition(".")
        host, _, pid = rest.rpartition(".")[0].rpartition(".")
        if prefix != _PREFIX or host != socket.gethostname() or not pid.isdigit():
            continue
        if not _is_alive(int(pid)):
            with contextlib.suppress(APIError):
                container.remove(force=True, v=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class ImageSource:
    """A ``Source`` over an image; ``root`` is the folder that holds ``vllm/``."""

    def __init__(self, container: Container, root: str, label: str) -> None:
        self._container = container
        self.root = root
        self.label = label
        self._files: dict[str, tuple[FileState, Metadata] | None] = {}
        self._folders: dict[str, Metadata | None] = {}

    def read(self, path: str) -> FileState | None:
        """The file's bytes and mode, None where it is absent. Raises UnsafePath."""
        found = self._read(path)
        return found[0] if found else None

    def metadata(self, path: str) -> Metadata | None:
        """What the image records of a file that ``read`` finds."""
        found = self._read(path)
        return found[1] if found else None

    def folder(self, path: str) -> Metadata | None:
        """What the image records of a folder below the root, None where absent."""
        if path not in self._folders:
            self._folders[path] = self._stat_folder(path)
        return self._folders[path]

    def names(self, folder: str) -> list[str]:
        """Names of the regular files in a small folder; empty where there is none."""
        if self.folder(folder) is None:
            return []
        found = []
        with self._archive(folder) as tar:
            for member in tar or ():
                parts = member.name.split("/")
                if member.isfile() and len(parts) == 2:
                    found.append(parts[1])
        return sorted(found)

    def _read(self, path: str) -> tuple[FileState, Metadata] | None:
        if path not in self._files:
            self._files[path] = self._fetch(path)
        return self._files[path]

    def _fetch(self, path: str) -> tuple[FileState, Metadata] | None:
        parts = checked_parts(path)
        for depth in range(1, len(parts)):
            if self.folder("/".join(parts[:depth])) is None:
                return None
        with self._archive(path) as tar:
            member = tar.next() if tar else None
            if tar is None or member is None:
                return None
            if member.issym():
                raise UnsafePath(path, path, "symlink")
            file = tar.extractfile(member) if member.isfile() else None
            if file is None:
                raise UnsafePath(path, path, "not-regular")
            data = file.read()
        mode = EXECUTABLE if member.mode & 0o100 else REGULAR
        return FileState(data, mode), _metadata(member)

    def _stat_folder(self, path: str) -> Metadata | None:
        """Refuses links: a folder that is one leads out of the tree we judge."""
        with self._archive(path) as tar:
            member = tar.next() if tar else None
            if member is None:
                return None
            if member.issym():
                raise UnsafePath(path, path, "symlink")
            if not member.isdir():
                raise UnsafePath(path, path, "parent-is-file")
            return _metadata(member)

    @contextlib.contextmanager
    def _archive(self, path: str) -> Iterator[tarfile.TarFile | None]:
        """The engine's tar stream of a path, read as far as needed; None if absent."""
        from docker.errors import NotFound

        try:
            stream, _ = self._container.get_archive(posixpath.join(self.root, path))
        except NotFound:
            yield None
            return
        reader = _Reader(stream)
        try:
            with tarfile.open(fileobj=reader, mode="r|") as tar:  # type: ignore[call-overload]
                yield tar
        finally:
            _close(stream)


def _metadata(member: tarfile.TarInfo) -> Metadata:
    # Go's writer puts the file type into the mode field too.
    mode = stat.S_IMODE(member.mode)
    return Metadata(mode, member.uid, member.gid, int(member.mtime))


class _Reader:
    """Chunks of a response as the file object that ``tarfile`` reads."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._rest += chunk
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def exists(container: Container, path: str) -> bool:
    """Whether an absolute path is in the container's file system."""
    from docker.errors import NotFound

    try:
        stream, _ = container.get_archive(path)
    except NotFound:
        return False
    _close(stream)
    return True


def _close(stream: Iterator[bytes]) -> None:
    """End a response before it is read to its end; the SDK gives a generator."""
    if isinstance(stream, Generator):
        stream.close()
