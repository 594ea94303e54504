"""Bases pulled by digest from a real registry, Debian's, on a loopback port."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest

from patchkit import image_labels as labels
from patchkit.errors import EnvironmentProblem, Refused
from patchkit.image_build import build_image
from patchkit.releases import BaseImage


@pytest.fixture(scope="module")
def registry(need, tmp_path_factory) -> Iterator[str]:
    need(
        shutil.which("docker-registry") is not None,
        "no docker-registry; apt-get install docker-registry",
    )
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "config.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: 127.0.0.1:{port}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'data'}}}}}\n"
    )
    process = subprocess.Popen(["docker-registry", "serve", str(config)])
    try:
        _wait(f"http://127.0.0.1:{port}/v2/")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait(url: str) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError), urllib.request.urlopen(url):
            return
        time.sleep(0.1)
    raise AssertionError("the registry did not start")


@pytest.fixture
def pushed(client, registry, base_image, made) -> tuple[str, str]:
    """A base in the registry and no longer here: its name and its digest."""
    base = base_image()
    name = f"{registry}/vllm-files"
    image = client.images.get(base)
    image.tag(name, "v0.25.0")
    made.append(f"{name}:v0.25.0")
    client.images.push(name, tag="v0.25.0")
    digest = client.images.get(base).attrs["RepoDigests"][0].partition("@")[2]
    made.append(f"{name}@{digest}")
    for reference in (f"{name}:v0.25.0", base):
        client.images.remove(reference, force=True)
    return name, digest


def with_image(release, name: str, digest: str | None):
    image = BaseImage(
        name=name,
        tag="v0.25.0",
        digest=digest,
        package_root="/usr/local/lib/python3.12/dist-packages",
    )
    return release.model_copy(update={"image": (image,)})


def test_the_pinned_base_is_pulled_by_digest(
    client, release, pushed, reference
) -> None:
    name, digest = pushed
    built = build_image(with_image(release, name, digest), reference=reference)
    assert (built.base, built.base_digest) == (name, digest)
    found = client.images.get(reference).labels
    assert found[labels.BASE_NAME] == name
    assert found[labels.BASE_DIGEST] == digest
    assert not [note for note in built.notes if "no registry digest" in note]


def test_a_tag_that_moved_is_refused(release, pushed, reference) -> None:
    name, _ = pushed
    other = with_image(release, name, "sha256:" + "1" * 64)
    with pytest.raises(Refused, match="pinned is sha256:1111"):
        build_image(other, base=f"{name}:v0.25.0", reference=reference)


def test_an_unknown_digest_is_one_line(release, pushed, reference) -> None:
    name, _ = pushed
    other = with_image(release, name, "sha256:" + "1" * 64)
    with pytest.raises(EnvironmentProblem, match="cannot pull"):
        build_image(other, reference=reference)
