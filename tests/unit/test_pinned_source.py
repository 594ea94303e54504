"""The pinned sdists themselves, from the user's own index and cache."""

from __future__ import annotations

import subprocess
import tarfile
import time

import pytest
from small_disk import Need

from patchkit.errors import EnvironmentProblem
from patchkit.releases import Release, load_releases
from patchkit.series import load_series
from patchkit.upstream import fetch_sdist, open_source

VERSIONS = [
    (release, version)
    for release in load_releases().release.values()
    for version in release.versions
]


@pytest.mark.parametrize(
    ("release", "version"), VERSIONS, ids=[version for _, version in VERSIONS]
)
def test_the_files_a_series_touches(release: Release, version: str, need: Need) -> None:
    """As tar reads them, by the digest that sha256sum finds; warm, in 50 ms."""
    paths = load_series(release).paths
    try:
        archive = fetch_sdist(release.find_sdist(version))
        open_source(release, version=version, paths=paths)
    except EnvironmentProblem as error:
        need(False, f"no pinned source: {error}")
    printed = subprocess.run(
        ["sha256sum", str(archive)], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split()[0] == release.find_sdist(version).sha256
    times = []
    for _ in range(5):
        began = time.perf_counter()
        source = open_source(release, version=version, paths=paths, offline=True)
        states = {path: source.read(path) for path in paths}
        times.append(time.perf_counter() - began)
    assert min(times) < 0.05
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
        top = f"vllm-{version}"
        for path, state in states.items():
            name = f"{top}/{path}"
            assert (state is None) == (name not in names)
            if state is not None:
                file = tar.extractfile(name)
                assert file is not None
                assert state.data == file.read()
