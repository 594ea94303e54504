"""Bases of the flavour ``ascend``: CANN images, vLLM put on them, and its plugins."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from patchkit import image_labels as labels
from patchkit.errors import EnvironmentProblem, Refused
from patchkit.image_run import run_inside
from patchkit.npu_tests import FLAVOUR, TORCH_NPU
from patchkit.releases import PROJECT, Release
from patchkit.step_progress import step_progress
from patchkit.upstream import fetch_sdist, open_source
from patchkit.upstream_env import REQUIREMENTS

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image

PLATFORMS = "vllm.platform_plugins"
PLUGINS = "VLLM_PLUGINS"
REPOSITORY = "vllm-patchkit-base"
_DOCKERFILES = PROJECT / "dockerfiles"
# pip's settings of this machine that are of use in a build, too.
_PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


@dataclass(frozen=True)
class Plugin:
    """An entry point by which a package extends vLLM."""

    name: str
    group: str
    package: str


@dataclass(frozen=True)
class InstalledVLLM:
    """vLLM as an image has it: its version, the folder that holds ``vllm/``.

    ``commit`` and ``tags`` are those of a git work tree; without one, or without git
    to ask, the commit is None or "".
    """

    root: str
    version: str
    has_torch_npu: bool = True
    plugins: tuple[Plugin, ...] = ()
    commit: str | None = None
    tags: tuple[str, ...] = ()


def installed_vllm(client: docker.DockerClient, image: Image) -> InstalledVLLM | None:
    """What the image's own Python finds; None where there is no vLLM.

    Raises EnvironmentProblem when it cannot be asked.
    """
    with step_progress("asking the base's Python for its vLLM"):
        return _parsed(run_inside(client, image, "where.py"))


def _parsed(found: dict[str, Any]) -> InstalledVLLM | None:
    if found["root"] is None:
        return None
    tree = found["work_tree"] or {}
    return InstalledVLLM(
        found["root"],
        found["version"] or "",
        found["has_torch_npu"],
        tuple(Plugin(**entry) for entry in found["plugins"]),
        tree.get("commit"),
        tuple(tree.get("tags", ())),
    )


def check_installed(vllm: InstalledVLLM, release: Release, label: str) -> list[str]:
    """Notes on the vLLM that an image has for the flavour ``ascend``.

    Raises Refused where it is for another device, lacks torch_npu, or is a git work
    tree of another commit than the release's.
    """
    target = vllm.version.partition("+")[2]
    if target not in ("", "empty"):
        raise Refused(
            f"{label} holds vLLM {vllm.version}, built for {target}; the flavour "
            f"{FLAVOUR} is for one of target empty",
            hint="leave BASE out for the pinned CANN image, or: BASE=local",
        )
    if not vllm.has_torch_npu:
        raise Refused(
            f"{label} has vLLM and no torch_npu, which the flavour {FLAVOUR} needs",
            hint="leave BASE out for the pinned CANN image, or: BASE=local",
        )
    note = _work_tree(vllm, release, label)
    return [note] if note else []


def _work_tree(vllm: InstalledVLLM, release: Release, label: str) -> str:
    """A note on the git work tree that vLLM lies in, "" where it is none.

    Raises Refused where the commit is known and is not that of the release's tag.
    """
    if vllm.commit is None:
        return ""
    wanted = [f"v{version}" for version in release.versions]
    tag = next((tag for tag in wanted if tag in vllm.tags), None)
    if tag:
        return f"{vllm.root} is a git work tree at {tag}"
    if not vllm.commit:
        return f"{vllm.root} is a git work tree, and no git is there to ask for its tag"
    raise Refused(
        f"{label}: {vllm.root} is a git work tree at {vllm.commit[:12]}"
        f"{f' ({vllm.tags[0]})' if vllm.tags else ''}, not at {' or '.join(wanted)}",
        hint="name an image with the release's own tag",
    )


def plugins_to_load(plugins: Sequence[Plugin]) -> str | None:
    """The value of VLLM_PLUGINS that leaves out-of-tree platforms out.

    None where no package brings one. All that such a package brings is left out: it
    is made for its own platform. An empty list loads none.
    """
    platforms = {each.package for each in plugins if each.group == PLATFORMS}
    if not platforms:
        return None
    left_out = {each.name for each in plugins if each.package in platforms}
    kept = {each.name for each in plugins if each.package not in platforms}
    return ",".join(sorted(kept - left_out))


def platform_packages(plugins: Sequence[Plugin]) -> list[str]:
    """The packages that bring an out-of-tree platform."""
    return sorted({each.package for each in plugins if each.group == PLATFORMS})


def vllm_on_cann(
    client: docker.DockerClient, release: Release, cann: Image, name: str, digest: str
) -> str:
    """The reference of an image with vLLM of target ``empty`` on a CANN image.

    Built from ``dockerfiles/Dockerfile.ascend``; the engine's cache makes it once.
    Raises EnvironmentProblem with the last lines of a build that fails.
    """
    from docker.errors import APIError, BuildError

    version = release.versions[0]
    simulated = labels.SIMULATED in (cann.labels or {})
    kind = "simulated-cann" if simulated else "cann"
    reference = f"{REPOSITORY}:{version}-{kind}"
    arguments = {
        "BASE": str(cann.id),
        "VERSION": version,
        "TORCH": release.torch,
        "TORCH_NPU": TORCH_NPU,
        **{key: os.environ[key] for key in _PASSED_ON if key in os.environ},
    }
    if simulated:
        # All is there; what is not has to fail at once, not wait for a network.
        arguments["PIP_NO_INDEX"] = "1"
    context = _context(release)
    try:
        with step_progress(f"building {reference}: vLLM {version} on {name}"):
            client.images.build(
                fileobj=io.BytesIO(context),
                custom_context=True,
                dockerfile="Dockerfile.ascend",
                tag=reference,
                buildargs=arguments,
                labels={labels.CANN_NAME: name, labels.CANN_DIGEST: digest},
                rm=True,
                forcerm=True,
            )
    except BuildError as error:
        said = "".join(str(entry.get("stream", "")) for entry in error.build_log)
        tail = "\n".join(said.strip().splitlines()[-15:])
        raise EnvironmentProblem(
            f"{reference} could not be built: {error.msg}; it said:\n{tail}",
            hint="PIP_INDEX_URL and PIP_EXTRA_INDEX_URL are passed on to the build",
        ) from None
    except APIError as error:
        raise EnvironmentProblem(
            f"{reference} could not be built: {error.explanation}"
        ) from None
    return reference


def _context(release: Release) -> bytes:
    """What Dockerfile.ascend copies, and itself."""
    sdist = release.find_sdist(release.versions[0])
    requirements = open_source(release, paths=(REQUIREMENTS,)).file(REQUIREMENTS)
    files = {
        "Dockerfile.ascend": _DOCKERFILES / "Dockerfile.ascend",
        "on-cann.sh": _DOCKERFILES / "ascend" / "on-cann.sh",
        "common.txt": requirements,
        f"vllm-{sdist.version}.tar.gz": fetch_sdist(sdist),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in files.items():
            entry = tarfile.TarInfo(name)
            data = path.read_bytes()
            entry.size, entry.mode = len(data), 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
