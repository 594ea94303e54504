"""Which image is patched: found or pulled, its digest, its vLLM, its package root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchkit.ascend_base import InstalledVLLM, installed_vllm, vllm_on_cann
from patchkit.errors import EnvironmentProblem, Refused, UsageError
from patchkit.image_labels import PATCH_SET
from patchkit.image_source import ImageSource, exists
from patchkit.npu_tests import FLAVOUR as ASCEND
from patchkit.releases import Release
from patchkit.step_progress import step_progress

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container
    from docker.models.images import Image

LOCAL = "local"
_PYTHONS = range(10, 15)


@dataclass(frozen=True)
class Base:
    """An image to patch. ``digest`` is the registry's, or the image id without one.

    ``vllm`` is what the image's Python found of it, for the flavour ``ascend`` alone.
    """

    image: Image
    name: str
    digest: str
    from_registry: bool
    vllm: InstalledVLLM | None = None


def find_base(
    client: docker.DockerClient, release: Release, wanted: str, flavour: str
) -> Base:
    """The image meant: ``wanted`` is empty (the pinned one), ``local``, a reference.

    For the flavour ``ascend`` that may be a CANN image, on which vLLM is put first.
    Raises UsageError without a pinned digest, EnvironmentProblem when it cannot be
    pulled or built, Refused when it is patched already or is not what was pinned.
    """
    if wanted == LOCAL:
        reference = _local(client, release, flavour)
    elif wanted:
        reference = wanted
    else:
        reference = _pinned(release, flavour)
    image = _get_or_pull(client, reference)
    base = _describe(image, reference)
    _check_pin(base, reference, release)
    labels = image.labels or {}
    if PATCH_SET in labels:
        raise Refused(
            f"{reference} is patched already, with {labels[PATCH_SET]}",
            hint="name the image it was made from",
        )
    return _with_vllm(client, release, base) if flavour == ASCEND else base


def _local(client: docker.DockerClient, release: Release, flavour: str) -> str:
    if flavour == ASCEND:
        from patchkit.simulated_cann import simulated_cann_image

        return simulated_cann_image(client, release)
    from patchkit.local_base import local_base_image

    return local_base_image(client, release)


def _with_vllm(client: docker.DockerClient, release: Release, base: Base) -> Base:
    """The base with what its vLLM is; vLLM is put on an image that has none."""
    vllm = installed_vllm(client, base.image)
    if vllm is None:
        reference = vllm_on_cann(client, release, base.image, base.name, base.digest)
        base = _describe(client.images.get(reference), reference)
        vllm = installed_vllm(client, base.image)
    return replace(base, vllm=vllm)


def _pinned(release: Release, flavour: str) -> str:
    images = release.cann if flavour == ASCEND else release.image
    if not images:
        raise UsageError(
            f"release {release.name} names no image for {flavour}",
            hint="name a base: BASE=…",
        )
    image = images[0]
    if image.digest is None:
        raise UsageError(
            f"{image.name}:{image.tag} has no digest in releases.toml",
            hint="make pins resolves it; or name a base: BASE=some/image@sha256:…",
        )
    return image.reference


def _get_or_pull(client: docker.DockerClient, reference: str) -> Image:
    from docker.errors import APIError, DockerException, ImageNotFound

    try:
        return client.images.get(reference)
    except ImageNotFound:
        pass
    except APIError as error:
        raise UsageError(f"{reference}: {error.explanation}") from None
    try:
        with step_progress(f"pulling {reference}"):
            if "@" in reference:
                return client.images.pull(reference)
            name, tag = split_tag(reference)
            return client.images.pull(name, tag=tag)
    except DockerException as error:
        reason = getattr(error, "explanation", None) or str(error)
        raise EnvironmentProblem(
            f"cannot pull {reference}: {' '.join(str(reason).split())}",
            hint="is its registry reachable? without one: BASE=local",
        ) from None


def split_tag(reference: str) -> tuple[str, str]:
    """Name and tag of a reference; a port is no tag, and ``latest`` is the default."""
    name, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:
        return reference, "latest"
    return name, tag


def _describe(image: Image, reference: str) -> Base:
    name = reference.partition("@")[0]
    bare = split_tag(name)[0]
    for entry in image.attrs.get("RepoDigests") or ():
        repository, _, digest = entry.partition("@")
        if repository in (bare, bare.removeprefix("docker.io/")):
            return Base(image, name, digest, from_registry=True)
    return Base(image, name, str(image.id), from_registry=False)


def _check_pin(base: Base, reference: str, release: Release) -> None:
    """A tag of a pinned image has to mean the pinned digest."""
    for pin in (*release.image, *release.cann):
        if pin.digest is None or reference != f"{pin.name}:{pin.tag}":
            continue
        if base.digest != pin.digest:
            raise Refused(
                f"{reference} is {base.digest} now; pinned is {pin.digest}",
                hint=f"take the pinned one: BASE={pin.reference}",
            )


def find_package_root(
    container: Container, release: Release, wanted: str | None
) -> str:
    """The folder in the image that holds ``vllm/``. Raises Refused if none does."""
    for root in _candidates(release, wanted):
        if exists(container, f"{root}/vllm/__init__.py"):
            return root
    raise Refused(
        f"no vllm package in the image{f' at {wanted}' if wanted else ''}",
        hint="name the folder that holds vllm/: --package-root /path",
    )


def _candidates(release: Release, wanted: str | None) -> Iterator[str]:
    if wanted:
        yield wanted.rstrip("/")
        return
    yield from dict.fromkeys(image.package_root for image in release.image)
    if release.local_base:
        yield release.local_base.package_root
    for minor in _PYTHONS:
        yield from (
            f"/usr/local/lib/python3.{minor}/dist-packages",
            f"/usr/local/lib/python3.{minor}/site-packages",
            f"/opt/venv/lib/python3.{minor}/site-packages",
        )
    yield "/vllm-workspace/vllm"


def check_version(
    source: ImageSource, release: Release, vllm: InstalledVLLM | None = None
) -> str:
    """The vLLM version in the image. Raises Refused unless the release accepts it.

    ``vllm`` is what the image's Python says, which has the build's target, too.
    """
    file = source.read("vllm/_version.py")
    text = file.data.decode("utf-8", "replace") if file else ""
    match = re.search(r"^__version__ = .*?['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    if match is None:
        raise Refused(f"{source.label}: vllm/_version.py states no version")
    if match[1].partition("+")[0] not in release.versions:
        raise Refused(
            f"{source.label} holds vLLM {match[1]}; release {release.name} is for "
            f"{' and '.join(sorted(release.versions))}",
            hint="name a base of that version, or another VERSION",
        )
    if vllm is None or vllm.version.partition("+")[0] != match[1].partition("+")[0]:
        return match[1]
    return vllm.version


def image_python(root: str, release: Release) -> tuple[int, int]:
    """The Python of the image, told by its package root, else the release's."""
    match = re.search(r"/python3\.(\d+)/", root)
    return (3, int(match[1])) if match else release.feature_version
