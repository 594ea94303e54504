"""What images made on the spot are made from: a Debian, wheels, one import of both.

From the user's own Debian and Python sources, and without running anything inside.
"""

from __future__ import annotations

import os
import platform
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchkit.cache import cache_folder, disk_problems
from patchkit.engine import install_packages, is_debian
from patchkit.errors import EnvironmentProblem
from patchkit.image_labels import NAMESPACE
from patchkit.step_progress import step_progress

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image

RECIPE_LABEL = f"{NAMESPACE}.local-base.recipe"
MTIME = 1577836800  # 2020-01-01, for every file that pip put there
_OLDEST, _NEWEST = 5, 36  # glibc 2.x of manylinux tags; Debian 12 has 2.36


@dataclass(frozen=True)
class Recipe:
    """What an image is made of; ``key`` changes where anything of it does.

    ``trees`` maps a folder of the image to the folder whose entries go there.
    """

    reference: str
    key: str
    what: str
    suite: str
    packages: tuple[str, ...]
    package_root: str
    trees: Mapping[str, Path] = field(default_factory=dict)
    changes: tuple[str, ...] = ()


def make_image(
    client: docker.DockerClient,
    recipe: Recipe,
    install: Callable[[Path], None],
    finish: Callable[[Image], Image] = lambda image: image,
) -> str:
    """The reference of the recipe's image, which is made if it is missing.

    ``install`` fills the folder of Python packages; ``finish`` may put a layer on the
    imported image. Raises EnvironmentProblem when it cannot be made here.
    """
    if _recipe_of(client, recipe.reference) == recipe.key:
        print(f"base {recipe.reference}: made before", file=sys.stderr)
        return recipe.reference
    _need_mmdebstrap()
    folder = cache_folder("local-base")
    with disk_problems(folder):
        _need_space(folder)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=folder))
    try:
        rootfs = work / "rootfs.tar"
        with step_progress(f"making a minimal Debian {recipe.suite} root file system"):
            _make_rootfs(recipe.suite, recipe.packages, rootfs)
        with step_progress(f"installing {recipe.what}, about 5 GB, some minutes"):
            install(work / "site")
        with step_progress(f"importing {recipe.reference}, 6 GB"):
            trees = {recipe.package_root: work / "site", **recipe.trees}
            label = f"LABEL {RECIPE_LABEL}={recipe.key}"
            image = _import(client, rootfs, trees, [label, *recipe.changes])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    # Only a whole image gets the name by which later runs find it.
    finish(image).tag(*recipe.reference.split(":"))
    return recipe.reference


def _recipe_of(client: docker.DockerClient, reference: str) -> str | None:
    from docker.errors import ImageNotFound

    try:
        labels = client.images.get(reference).labels
    except ImageNotFound:
        return None
    return dict(labels or {}).get(RECIPE_LABEL)


def _need_mmdebstrap() -> None:
    """Install mmdebstrap where that may be done. Raises EnvironmentProblem."""
    if shutil.which("mmdebstrap") is not None:
        return
    if not (is_debian() and os.geteuid() == 0):
        raise EnvironmentProblem(
            "BASE=local needs mmdebstrap, which is not here",
            hint="on Debian or Ubuntu: sudo apt-get install mmdebstrap; elsewhere name "
            "a base: BASE=some/image@sha256:…",
        )
    install_packages("mmdebstrap")


def _need_space(folder: Path) -> None:
    """Raise EnvironmentProblem where a base cannot be made for lack of space."""
    free = shutil.disk_usage(folder).free
    if free < 14 * 10**9:
        raise EnvironmentProblem(
            f"{folder}: {free / 1e9:.0f} GB free; making the local base takes 14",
            hint="free some space, or set XDG_CACHE_HOME to another disk",
        )


def _make_rootfs(suite: str, packages: Sequence[str], target: Path) -> None:
    """A minimal Debian with ``packages``, as the tar file ``target``."""
    run_step(
        [
            *("mmdebstrap", "--quiet", "--variant=minbase"),
            *(
                "--aptopt=APT::Install-Recommends false",
                "--dpkgopt=path-exclude=/usr/share/man/*",
            ),
            f"--include={','.join(packages)}",
            suite,
            str(target),
        ],
        "mmdebstrap",
    )


def pip_for(python: str, site: Path) -> list[str]:
    """pip of this machine, installing into ``site`` for an image's Python."""
    machine = platform.machine()
    tags = [
        f"manylinux_2_{minor}_{machine}" for minor in range(_NEWEST, _OLDEST - 1, -1)
    ]
    tags += [f"manylinux2014_{machine}", f"linux_{machine}"]
    digits = python.replace(".", "")
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"),
        *("--disable-pip-version-check", "--only-binary=:all:", "--target", str(site)),
        *("--implementation", "cp", "--python-version", python),
        *("--abi", f"cp{digits}", "--abi", "abi3", "--abi", "none"),
        *(word for tag in tags for word in ("--platform", tag)),
    ]


def _import(
    client: docker.DockerClient,
    rootfs: Path,
    trees: Mapping[str, Path],
    changes: Sequence[str],
) -> Image:
    """Send all as one tar stream; nothing of 6 GB is written twice."""
    reader, writer = os.pipe()
    failure: list[BaseException] = []

    def send() -> None:
        try:
            with os.fdopen(writer, "wb") as stream:
                _write_tar(stream, rootfs, trees)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    with os.fdopen(reader, "rb") as stream:
        answer = client.api.import_image_from_stream(
            stream,
            changes=[
                'CMD ["python3"]',
                "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                *changes,
            ],
        )
    thread.join()
    found = re.search(r"sha256:[0-9a-f]{64}", str(answer))
    if failure or found is None:
        # The engine takes a stream that breaks off for one that ends.
        if found:
            client.images.remove(found[0], force=True)
        reason = failure[0] if failure else answer
        raise EnvironmentProblem(f"the engine did not import the image: {reason}")
    return client.images.get(found[0])


def _write_tar(stream: Any, rootfs: Path, trees: Mapping[str, Path]) -> None:
    """One tar of all; the engine refuses a path that stands in it twice."""
    seen: set[str] = set()
    with tarfile.open(fileobj=stream, mode="w|", bufsize=1 << 20) as out:
        with tarfile.open(rootfs, "r|") as base:
            for member in base:
                seen.add(posixpath.normpath(member.name).lstrip("/"))
                # A stream cannot follow a hard link to its file, nor has to.
                out.addfile(
                    member, base.extractfile(member) if member.isreg() else None
                )

        def once(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
            is_bytecode = "__pycache__" in member.name.split("/")
            return None if is_bytecode or member.name in seen else _as_root(member)

        for folder, tree in trees.items():
            for entry in sorted(tree.iterdir()):
                out.add(entry, f"{folder.lstrip('/')}/{entry.name}", filter=once)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = MTIME
    return member


def run_step(command: Sequence[str], name: str) -> None:
    """Run a program. Raises EnvironmentProblem with its reason when it fails."""
    done = subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("E:", "ERROR"))] or lines
        reason = errors[-1] if errors else f"exit {done.returncode}"
        raise EnvironmentProblem(
            f"{name}: {reason}", hint="check the network, and the disk's free space"
        )
