"""A real engine, and small made-up base images whose vLLM files are the pinned ones."""

from __future__ import annotations

import contextlib
import io
import secrets
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patchkit.engine import connect
from patchkit.errors import EnvironmentProblem
from patchkit.releases import Release, load_releases
from patchkit.series import load_series
from patchkit.upstream import open_source

ROOT = "usr/local/lib/python3.12/dist-packages"
MTIME = 1_600_000_000
PREFIX = "patchkit-test"


@pytest.fixture(scope="session")
def client(need) -> Iterator[object]:
    """A client of the engine that answers."""
    try:
        engine = connect()
    except EnvironmentProblem as error:
        need(False, f"{error}; make engine")
        raise
    with contextlib.closing(engine):
        yield engine


@pytest.fixture(scope="session")
def release() -> Release:
    """The release the tests build images of."""
    return load_releases().find("0.25")


@pytest.fixture(scope="session")
def pinned(release: Release, need) -> dict[str, bytes]:
    """The files that the series changes, of the pinned 0.25.0, and its version."""
    try:
        source = open_source(
            release, version="0.25.0", paths=load_series(release).paths
        )
    except EnvironmentProblem as error:
        need(False, str(error))
        raise
    files = {path: source.read(path) for path in load_series(release).paths}
    plain = {
        "vllm/__init__.py": b"",
        "vllm/_version.py": b"__version__ = version = '0.25.0'\n",
    }
    return plain | {path: state.data for path, state in files.items() if state}


def make_tar(files: dict[str, bytes], odd: dict[str, tuple[int, int, int]]) -> bytes:
    """A root file system with ``files`` below the package root.

    ``odd`` gives mode, owner and group of single files; others are 644 of root.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        made: set[str] = set()
        for path, data in sorted(files.items()):
            name = f"{ROOT}/{path}"
            for parent in reversed(list(Path(name).parents)[:-1]):
                if str(parent) not in made:
                    made.add(str(parent))
                    entry = tarfile.TarInfo(str(parent))
                    entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, MTIME
                    tar.addfile(entry)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), MTIME
            entry.mode, entry.uid, entry.gid = odd.get(path, (0o644, 0, 0))
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def made(client) -> Iterator[list[str]]:
    """References that the test made, removed at its end."""
    names: list[str] = []
    yield names
    for name in names:
        with contextlib.suppress(Exception):
            client.images.remove(name, force=True)


@pytest.fixture
def base_image(client, pinned, made) -> Callable[..., str]:
    """Makes a base image; returns its reference. Not a vLLM image: files alone."""

    def make(
        changed: dict[str, bytes | None] | None = None,
        odd: dict[str, tuple[int, int, int]] | None = None,
        settings: tuple[str, ...] = ('ENTRYPOINT ["vllm", "serve"]',),
    ) -> str:
        files = {**pinned, **(changed or {})}
        present = {path: data for path, data in files.items() if data is not None}
        tag = secrets.token_hex(4)
        client.api.import_image_from_data(
            make_tar(present, odd or {}),
            repository=f"{PREFIX}-base",
            tag=tag,
            changes=list(settings),
        )
        made.append(f"{PREFIX}-base:{tag}")
        return made[-1]

    return make


@pytest.fixture
def reference(made) -> str:
    """A name for an image that the test builds."""
    made.append(f"{PREFIX}:{secrets.token_hex(4)}")
    return made[-1]
