"""``BASE=local``: a CPU base image made on the spot, for machines without a registry.

A minimal Debian root file system, its Python, and vLLM's CPU wheel with the torch that
the release pins, from the user's own Debian and Python sources. No compiler, no git.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.errors import UsageError
from patchkit.image_parts import Recipe, make_image, pip_for, run_step
from patchkit.releases import LocalBase, Release
from patchkit.upstream import open_source
from patchkit.upstream_env import REQUIREMENTS

if TYPE_CHECKING:
    import docker

RECIPE = 2  # count up when what this module makes changes
PACKAGES = ("python3", "ca-certificates", "libnuma1")
REPOSITORY = "vllm-patchkit-base"


def local_base_image(client: docker.DockerClient, release: Release) -> str:
    """The reference of the release's local base, which is made if it is missing.

    Takes minutes and about 12 GB of free disk the first time. Raises UsageError when
    the release has no local base, EnvironmentProblem when it cannot be made here.
    """
    base = release.local_base
    if base is None:
        raise UsageError(
            f"release {release.name} has no local base",
            hint="name one: BASE=some/image@sha256:…",
        )
    source = open_source(release, version=base.version, paths=(REQUIREMENTS,))
    requirements = source.file(REQUIREMENTS)
    reference = f"{REPOSITORY}:{base.version}-cpu"
    made_of = Recipe(
        reference,
        _key(release, base, requirements),
        f"{base.wheel} {base.version} and torch {release.torch}",
        base.suite,
        PACKAGES,
        base.package_root,
    )
    return make_image(
        client,
        made_of,
        lambda site: _install_packages(release, base, requirements, site),
    )


def _key(release: Release, base: LocalBase, requirements: Path) -> str:
    text = "\n".join(
        [
            str(RECIPE),
            platform.machine(),
            release.torch,
            *PACKAGES,
            base.model_dump_json(),
            requirements.read_text(),
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _install_packages(
    release: Release, base: LocalBase, requirements: Path, site: Path
) -> None:
    pip = pip_for(base.python, site)
    run_step([*pip, f"torch=={release.torch}", "-r", str(requirements)], "pip")
    # Its own metadata wants a local version of torch that no index has.
    run_step([*pip, "--no-deps", "--upgrade", f"{base.wheel}=={base.version}"], "pip")
