"""A Python environment, kept per user, in which a release's source tree imports.

It holds the release's own torch pin and the sdist's ``requirements/common.txt``, as a
CPU needs no more to import vLLM's Python sources, and what its tests run with. No
compiled kernel of vLLM is in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from patchkit.cache import cache_folder, disk_problems
from patchkit.errors import EnvironmentProblem
from patchkit.releases import Release
from patchkit.step_progress import step_progress
from patchkit.upstream import open_source

REQUIREMENTS = "requirements/common.txt"
TEST_TOOLS = ("coverage>=7.10", "pytest>=8", "pytest-timeout>=2")
STAMP = "complete"


def upstream_python(release: Release) -> Path:
    """The interpreter of the release's environment, which is made on first use.

    Several gigabytes and some minutes, once. Raises EnvironmentProblem when it cannot
    be made; a half-made one is made anew by the next call.
    """
    source = open_source(release, paths=(REQUIREMENTS,))
    requirements = source.file(REQUIREMENTS)
    wanted = [f"torch=={release.torch}", *TEST_TOOLS]
    recipe = "\n".join([sys.version, *wanted, requirements.read_text()])
    key = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    folder = cache_folder("environments") / f"{source.version}-{key}"
    python = folder / "bin" / "python"
    with _one_at_a_time(folder):
        if (folder / STAMP).is_file():
            return python
        with step_progress(
            f"making the environment of vLLM {source.version}: torch {release.torch} "
            "and its requirements, about 5 GB, some minutes"
        ):
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)])
            _run(
                [
                    *(str(python), "-m", "pip", "install", "--quiet"),
                    *("--disable-pip-version-check", "--no-compile"),
                    *wanted,
                    *("-r", str(requirements)),
                ]
            )
            (folder / STAMP).touch()
    return python


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    with disk_problems(folder):
        lock = folder.with_suffix(".lock").open("w")
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
