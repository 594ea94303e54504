"""A Python environment, kept per user, in which a release's source tree imports.

It holds the release's own torch pin and the sdist's ``requirements/common.txt``, as a
CPU needs no more to import vLLM's Python sources, and what its tests run with. No
compiled kernel of vLLM is in it.

Releases with one torch pin share a base of several gigabytes. A release's own
environment lies on top of that and holds what it wants otherwise, by pip's own
judgement: mostly a few megabytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.version import Version

from patchkit.cache import cache_folder, disk_problems
from patchkit.errors import EnvironmentProblem
from patchkit.releases import Release, load_releases
from patchkit.step_progress import step_progress
from patchkit.upstream import open_source

REQUIREMENTS = "requirements/common.txt"
TEST_TOOLS = ("coverage>=7.10", "pytest>=8", "pytest-timeout>=2")
# What torch_npu imports, and the tests of its test bed.
NPU_NEEDS = (
    "attrs",
    "decorator",
    "hypothesis>=6",
    "numpy",
    "psutil",
    "pyyaml",
    "scipy",
)
STAMP = "complete"
# Makes an environment see another's packages after its own.
BASE_LINK = "patchkit-base.pth"


def upstream_python(release: Release, tools: Sequence[str] = ()) -> Path:
    """The interpreter of the release's environment, which is made on first use.

    Several gigabytes and some minutes, once for each torch pin. ``tools`` are further
    requirements, in an environment of their own on top. Raises EnvironmentProblem when
    it cannot be made; a half-made one is made anew by the next call.
    """
    base = _environment(_oldest_with_torch(release), None)
    own = _environment(release, base)
    if tools:
        own = _layer(own.name.partition("-")[0], own, tools, None)
    return own / "bin" / "python"


def npu_python(release: Release, torch_npu: str) -> Path:
    """The interpreter of an environment with that torch_npu beside the release's.

    ``torch_npu`` is a version. Its wheel asks for a CPU build of torch that indexes do
    not have, so its own needs are left out and the few that it imports named here.
    Raises EnvironmentProblem when it cannot be made.
    """
    below = _environment(release, _environment(_oldest_with_torch(release), None))
    name = f"torch-npu-{torch_npu}"
    alone = (f"torch_npu=={torch_npu}",)
    return _layer(name, below, NPU_NEEDS, None, alone) / "bin" / "python"


def program_python(name: str, wanted: Sequence[str]) -> Path:
    """The interpreter of a small environment of its own, for one of upstream's tools.

    Raises EnvironmentProblem when it cannot be made.
    """
    return _layer(name, None, wanted, None) / "bin" / "python"


def simulated_npu_environment(*folders: Path) -> dict[str, str]:
    """This process's environment, for an interpreter on the simulated CANN runtime.

    ``folders`` come first on PYTHONPATH. Bytecode is kept: importing torch and vLLM
    without takes most of a minute.
    """
    path = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        # Before torch is imported: it would load torch_npu by itself.
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "TASK_QUEUE_ENABLE": "0",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _oldest_with_torch(release: Release) -> Release:
    """The release whose requirements a base holds: a later one does not change it."""
    same = [r for r in load_releases().release.values() if r.torch == release.torch]
    return min(same, key=lambda r: Version(r.name), default=release)


def _environment(release: Release, base: Path | None) -> Path:
    """The folder of a base, or of what ``release`` wants on top of one."""
    source = open_source(release, paths=(REQUIREMENTS,))
    requirements = source.file(REQUIREMENTS)
    wanted = (f"torch=={release.torch}", *TEST_TOOLS)
    name = source.version if base else f"torch-{release.torch}"
    return _layer(name, base, wanted, requirements)


def _layer(
    name: str,
    base: Path | None,
    wanted: Sequence[str],
    requirements: Path | None,
    alone: Sequence[str] = (),
) -> Path:
    """The folder of what is wanted, on top of ``base``; made where it is missing.

    What is wanted ``alone`` comes without its own requirements.
    """
    below = base.name if base else ""
    text = [requirements.read_text()] if requirements else []
    recipe = "\n".join([sys.version, below, *wanted, *text, *alone])
    key = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    folder = cache_folder("environments") / f"{name}-{key}"
    what = f"making the environment {name}"
    if requirements:
        what += ", some GB and minutes"
    if base:
        what = f"making the environment {name} on {base.name}"
    with _one_at_a_time(folder):
        if (folder / STAMP).is_file():
            return folder
        with step_progress(what):
            shutil.rmtree(folder, ignore_errors=True)
            further = ("-r", str(requirements)) if requirements else ()
            _make(folder, base, [*wanted, *further])
            if alone:
                _install(folder, ["--no-deps", *alone])
            (folder / STAMP).touch()
    return folder


def _make(folder: Path, base: Path | None, wanted: Sequence[str]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    if base:
        # Not a plain path, whose own .pth files would not be read.
        line = f"import site; site.addsitedir({str(_site_packages(base))!r})\n"
        (_site_packages(folder) / BASE_LINK).write_text(line)
    _install(folder, wanted)


def _install(folder: Path, wanted: Sequence[str]) -> None:
    _run(
        [
            *(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"),
            *("--disable-pip-version-check", "--no-compile", *wanted),
        ]
    )


def _site_packages(folder: Path) -> Path:
    (found,) = folder.glob("lib/python3*/site-packages")
    return found


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    with disk_problems(folder):
        lock = folder.with_name(f"{folder.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in said if line.startswith("ERROR")] or said
        reason = errors[-1] if errors else f"exit {done.returncode}"
        full = "No space left" in done.stderr
        raise EnvironmentProblem(
            f"the upstream environment could not be made: {reason}",
            hint="free some space (6 GB)"
            if full
            else "check the network and pip's index",
        )
