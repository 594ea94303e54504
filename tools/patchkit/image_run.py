"""Runs things in containers of an image: scripts of ``dockerfiles/smoke``, programs."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patchkit.errors import EnvironmentProblem
from patchkit.releases import PROJECT
from patchkit.step_progress import step_progress

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image

SCRIPTS = PROJECT / "dockerfiles" / "smoke"
INSIDE = "/tmp/smoke"
MARK = "SMOKE-RESULT "


def run_inside(
    client: docker.DockerClient,
    image: Image,
    script: str,
    *arguments: str,
    files: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a script of ``dockerfiles/smoke`` by the image's Python; its result.

    Without network, in a container that is removed. Raises EnvironmentProblem with
    the last lines of its output when it gives no result.
    """
    from docker.errors import APIError

    container = client.containers.create(
        str(image.id),
        entrypoint=["python3", f"{INSIDE}/{script}", *arguments],
        command=[],
        network_mode="none",
        user="0",
        shm_size="1g",
    )
    try:
        container.put_archive("/tmp", _scripts_tar(files or {}))
        container.start()
        container.wait()
        output = container.logs().decode("utf-8", "replace")
    except APIError as error:
        raise EnvironmentProblem(
            f"{script} could not run in the image: {error.explanation}"
        ) from None
    finally:
        container.remove(force=True, v=True)
    for line in reversed(output.splitlines()):
        if line.startswith(MARK):
            result: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return result
    raise EnvironmentProblem(
        f"{script} gave no result in the image; it said:\n{_tail(output)}"
    )


def run_program(
    client: docker.DockerClient, image: Image, words: Sequence[str], what: str
) -> Image:
    """The image with what a program wrote as one layer more, with no name yet.

    Raises EnvironmentProblem with the program's output when it fails.
    """
    from docker.errors import APIError

    config = image.attrs["Config"]
    container = client.containers.create(
        str(image.id), entrypoint=list(words), command=[], network_mode="none"
    )
    try:
        with step_progress(what):
            container.start()
            status = container.wait()["StatusCode"]
            if status:
                output = container.logs().decode("utf-8", "replace")
                raise EnvironmentProblem(
                    f"{what}: exit {status}; it said:\n{_tail(output)}"
                )
            command = json.dumps(config.get("Cmd") or [])
            entry = json.dumps(config.get("Entrypoint") or [])
            changes = [f"ENTRYPOINT {entry}", f"CMD {command}"]
            return container.commit(changes="\n".join(changes))
    except APIError as error:
        raise EnvironmentProblem(f"{what}: {error.explanation}") from None
    finally:
        container.remove(force=True, v=True)


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-15:])


def _scripts_tar(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(SCRIPTS.glob("*.py")):
            tar.add(path, f"smoke/{path.name}")
        for name, text in files.items():
            entry = tarfile.TarInfo(f"smoke/{name}")
            entry.size = len(text.encode())
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
