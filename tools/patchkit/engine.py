"""The container engine: the one that answers, or Debian's docker.io started here."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from patchkit.cache import APPLICATION
from patchkit.errors import EnvironmentProblem
from patchkit.step_progress import step_progress

if TYPE_CHECKING:
    import docker

DAEMON = "dockerd"
START_SECONDS = 60
LONG_CALL = 1800  # seconds: imports and commits of several gigabytes


@dataclass(frozen=True)
class EngineState:
    """An engine that answers: its version, and what was done to get there."""

    version: str
    installed: bool = False
    started: bool = False


def connect() -> docker.DockerClient:
    """A client of the engine that the environment names (DOCKER_HOST), or the local.

    Raises EnvironmentProblem when none answers.
    """
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=LONG_CALL)
        client.ping()
    except DockerException:
        where = os.environ.get("DOCKER_HOST", "its default socket")
        raise EnvironmentProblem(
            f"no container engine answers at {where}",
            hint="make engine (Debian or Ubuntu, as root), or start your engine",
        ) from None
    return client


def running_version() -> str | None:
    """The version of the engine that answers, None if none does."""
    try:
        client = connect()
    except EnvironmentProblem:
        return None
    with contextlib.closing(client):
        return str(client.version()["Version"])


def ensure_engine() -> EngineState:
    """Make sure that an engine answers.

    Where none does: on Debian or Ubuntu as root, docker.io is installed if need be and
    dockerd started; it stays when this process ends. Raises EnvironmentProblem, with
    one line on what to do, anywhere else.
    """
    version = running_version()
    if version is not None:
        return EngineState(version)
    if os.environ.get("DOCKER_HOST"):
        raise EnvironmentProblem(
            f"DOCKER_HOST is {os.environ['DOCKER_HOST']}, and no engine answers there",
            hint="start that engine, or unset DOCKER_HOST",
        )
    if not (is_debian() and os.geteuid() == 0):
        raise EnvironmentProblem(
            "no container engine answers; this machine is not Debian or Ubuntu, or "
            "you are not root",
            hint="install Docker or start it, then: make image VERSION=…",
        )
    installed = shutil.which(DAEMON) is None
    if installed:
        install_packages("docker.io")
    _start_daemon()
    version = running_version()
    assert version is not None  # _start_daemon waited for it
    return EngineState(version, installed, started=True)


def is_debian() -> bool:
    """Whether this machine has Debian's packages (``/etc/os-release``)."""
    import platform

    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return False
    names = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return bool(names & {"debian", "ubuntu"}) and shutil.which("apt-get") is not None


def install_packages(*names: str) -> None:
    """Install Debian packages as root. Raises EnvironmentProblem with apt's reason."""
    with step_progress(f"installing {', '.join(names)} with apt-get"):
        _apt("update", "-qq")
        _apt("install", "-qq", "-y", "--no-install-recommends", *names)


def _apt(*words: str) -> None:
    done = subprocess.run(
        ["apt-get", *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise EnvironmentProblem(
            f"apt-get {words[0]}: {lines[-1]}",
            hint="check the network and apt's sources",
        )


def _start_daemon() -> None:
    """Start dockerd in a session of its own and wait until it answers."""
    folder = Path(platformdirs.user_state_path(APPLICATION))
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{DAEMON}.log"
    with step_progress(f"starting {DAEMON}, log in {log}"), log.open("wb") as output:
        process = subprocess.Popen(
            [DAEMON],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        while running_version() is None:
            if process.poll() is not None or time.monotonic() > deadline:
                if process.poll() is None:
                    process.terminate()
                lines = log.read_text(errors="replace").strip().splitlines()
                raise EnvironmentProblem(
                    f"{DAEMON} does not answer: {lines[-1] if lines else 'no output'}",
                    hint=f"its log is {log}",
                )
            time.sleep(0.3)
