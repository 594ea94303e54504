"""A stand-in for a CANN image: the simulated runtime of ``tests/cann`` on a Debian.

There is no CANN in it and it drives no NPU; its name and a label say so. Else it has
what a CANN image has, a Python with pip and a compiler, and the packages that
``Dockerfile.ascend`` asks for, so that it builds without a network.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit import image_labels as labels
from patchkit.image_parts import Recipe, make_image, pip_for, run_step
from patchkit.image_run import run_program
from patchkit.npu_tests import TORCH_NPU
from patchkit.releases import PROJECT, Release
from patchkit.upstream import open_source
from patchkit.upstream_env import NPU_NEEDS, REQUIREMENTS

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image

REPOSITORY = "vllm-patchkit-simulated-cann"
WHAT = "a simulated runtime on host memory: no CANN and no NPU"
SUITE, PYTHON = "bookworm", "3.11"
PACKAGE_ROOT = f"/usr/local/lib/python{PYTHON}/dist-packages"
RUNTIME = "/opt/simulated-cann"
# The runtime's libraries are compiled for the torch_npu that is there.
PACKAGES = (
    *("python3", "python3-pip", "python3-dev", "ca-certificates", "libnuma1"),
    *("gcc", "g++", "binutils", "libc6-dev", "git"),
)
# What vLLM's pyproject.toml asks for to build, as far as the target empty needs it.
BUILD_NEEDS = (
    *("setuptools>=77.0.3,<81", "setuptools-scm>=8", "setuptools-rust>=1.9"),
    *("wheel", "jinja2", "packaging>=24.2"),
)
_RECIPE = 1  # count up when what this module makes changes
_TESTS = PROJECT / "tests" / "cann"


def simulated_cann_image(client: docker.DockerClient, release: Release) -> str:
    """The reference of the stand-in for a release, which is made if it is missing.

    Takes minutes and about 12 GB of free disk the first time. Raises
    EnvironmentProblem when it cannot be made here.
    """
    requirements = open_source(release, paths=(REQUIREMENTS,)).file(REQUIREMENTS)
    version = release.versions[0]
    recipe = Recipe(
        f"{REPOSITORY}:for-{version}",
        _key(release, requirements),
        f"torch {release.torch}, torch_npu {TORCH_NPU} and what vLLM {version} imports",
        SUITE,
        PACKAGES,
        PACKAGE_ROOT,
        {
            f"{RUNTIME}/simulated": _TESTS / "simulated",
            f"{RUNTIME}/in_children": _TESTS / "in_children",
        },
        (
            f'LABEL {labels.SIMULATED}="{WHAT}"',
            f"ENV PYTHONPATH={RUNTIME}/in_children:{RUNTIME}",
            # Before torch is imported: it would load torch_npu by itself.
            "ENV TORCH_DEVICE_BACKEND_AUTOLOAD=0",
            "ENV TASK_QUEUE_ENABLE=0",
            f"ENV XDG_CACHE_HOME={RUNTIME}/cache",
        ),
    )
    return make_image(
        client,
        recipe,
        lambda site: _install_packages(release, requirements, site),
        lambda image: _with_libraries(client, image),
    )


def _key(release: Release, requirements: Path) -> str:
    digest = hashlib.sha256()
    words = [_RECIPE, platform.machine(), release.torch, TORCH_NPU, SUITE, PYTHON, WHAT]
    words += [*PACKAGES, *NPU_NEEDS, *BUILD_NEEDS, requirements.read_text()]
    digest.update("\n".join(map(str, words)).encode())
    for path in _runtime_files():
        digest.update(f"{path.relative_to(_TESTS)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _runtime_files() -> list[Path]:
    folders = (_TESTS / "simulated", _TESTS / "in_children")
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if "__pycache__" not in path.parts)


def _install_packages(release: Release, requirements: Path, site: Path) -> None:
    pip = pip_for(PYTHON, site)
    wanted = [f"torch=={release.torch}", *NPU_NEEDS, *BUILD_NEEDS]
    run_step([*pip, *wanted, "-r", str(requirements)], "pip")
    # Its own metadata wants a local version of torch that no index has.
    run_step([*pip, "--no-deps", "--upgrade", f"torch_npu=={TORCH_NPU}"], "pip")


def _with_libraries(client: docker.DockerClient, image: Image) -> Image:
    """The image with the runtime's libraries compiled; a device has to be there."""
    program = "import torch, torch_npu; assert torch.npu.device_count() == 1"
    return run_program(
        client, image, ["python3", "-c", program], "compiling the simulated runtime"
    )
