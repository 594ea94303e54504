"""``BASE=local``: a CPU base image made on the spot, for machines without a registry.

A minimal Debian root file system, its Python, and vLLM's CPU wheel with the torch that
the release pins, from the user's own Debian and Python sources. No compiler, no git.
"""

from __future__ import annotations

import hashlib
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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchkit.cache import cache_folder, disk_problems
from patchkit.engine import install_packages, is_debian
from patchkit.errors import EnvironmentProblem, UsageError
from patchkit.image_labels import NAMESPACE
from patchkit.releases import LocalBase, Release
from patchkit.step_progress import step_progress
from patchkit.upstream import open_source
from patchkit.upstream_env import REQUIREMENTS

if TYPE_CHECKING:
    import docker

RECIPE = 2  # count up when what this module makes changes
RECIPE_LABEL = f"{NAMESPACE}.local-base.recipe"
PACKAGES = ("python3", "ca-certificates", "libnuma1")
REPOSITORY = "vllm-patchkit-base"
MTIME = 1577836800  # 2020-01-01, for every file that pip put there
_OLDEST, _NEWEST = 5, 36  # glibc 2.x of manylinux tags; Debian 12 has 2.36


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
    recipe = _recipe(release, base, requirements)
    if _recipe_of(client, reference) == recipe:
        print(f"base {reference}: made before", file=sys.stderr)
        return reference
    _need_mmdebstrap()
    folder = cache_folder("local-base")
    with disk_problems(folder):
        _need_space(folder)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=folder))
    try:
        rootfs = work / "rootfs.tar"
        with step_progress(f"making a minimal Debian {base.suite} root file system"):
            _make_rootfs(base.suite, rootfs)
        with step_progress(
            f"installing {base.wheel} {base.version} and torch {release.torch}, "
            "about 5 GB, some minutes"
        ):
            _install_packages(release, base, requirements, work / "site")
        with step_progress(f"importing {reference}, 6 GB"):
            _import(client, work, base, reference, recipe)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return reference


def _recipe(release: Release, base: LocalBase, requirements: Path) -> str:
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


def _recipe_of(client: docker.DockerClient, reference: str) -> str | None:
    from docker.errors import ImageNotFound

    try:
        labels = client.images.get(reference).labels
    except ImageNotFound:
        return None
    return dict(labels or {}).get(RECIPE_LABEL)


def _need_mmdebstrap() -> None:
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
    free = shutil.disk_usage(folder).free
    if free < 14 * 10**9:
        raise EnvironmentProblem(
            f"{folder}: {free / 1e9:.0f} GB free; making the local base takes 14",
            hint="free some space, or set XDG_CACHE_HOME to another disk",
        )


def _make_rootfs(suite: str, target: Path) -> None:
    _run(
        [
            *("mmdebstrap", "--quiet", "--variant=minbase"),
            *(
                "--aptopt=APT::Install-Recommends false",
                "--dpkgopt=path-exclude=/usr/share/man/*",
            ),
            f"--include={','.join(PACKAGES)}",
            suite,
            str(target),
        ],
        "mmdebstrap",
    )


def _install_packages(
    release: Release, base: LocalBase, requirements: Path, site: Path
) -> None:
    """pip on this machine installs for the image's Python, so that none runs in it."""
    machine = platform.machine()
    tags = [
        f"manylinux_2_{minor}_{machine}" for minor in range(_NEWEST, _OLDEST - 1, -1)
    ]
    tags += [f"manylinux2014_{machine}", f"linux_{machine}"]
    digits = base.python.replace(".", "")
    pip = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"),
        *("--disable-pip-version-check", "--only-binary=:all:", "--target", str(site)),
        *("--implementation", "cp", "--python-version", base.python),
        *("--abi", f"cp{digits}", "--abi", "abi3", "--abi", "none"),
        *(word for tag in tags for word in ("--platform", tag)),
    ]
    _run([*pip, f"torch=={release.torch}", "-r", str(requirements)], "pip")
    # Its own metadata wants a local version of torch that no index has.
    _run([*pip, "--no-deps", "--upgrade", f"{base.wheel}=={base.version}"], "pip")


def _import(
    client: docker.DockerClient,
    work: Path,
    base: LocalBase,
    reference: str,
    recipe: str,
) -> None:
    """Send both trees as one tar stream; nothing of 6 GB is written twice."""
    reader, writer = os.pipe()
    failure: list[BaseException] = []

    def send() -> None:
        try:
            with os.fdopen(writer, "wb") as stream:
                _write_tar(
                    stream, work / "rootfs.tar", work / "site", base.package_root
                )
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
                f"LABEL {RECIPE_LABEL}={recipe}",
            ],
        )
    thread.join()
    found = re.search(r"sha256:[0-9a-f]{64}", str(answer))
    if failure or found is None:
        # The engine takes a stream that breaks off for one that ends.
        if found:
            client.images.remove(found[0], force=True)
        reason = failure[0] if failure else answer
        raise EnvironmentProblem(f"the engine did not import {reference}: {reason}")
    # Only a whole image gets the name by which later runs find it.
    client.images.get(found[0]).tag(*reference.split(":"))


def _write_tar(stream: Any, rootfs: Path, site: Path, package_root: str) -> None:
    """One tar of both; the engine refuses a path that stands in it twice."""
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
            return None if member.name in seen else _as_root(member)

        for entry in sorted(site.iterdir()):
            out.add(entry, f"{package_root.lstrip('/')}/{entry.name}", filter=once)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = MTIME
    return member


def _run(command: Sequence[str], name: str) -> None:
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
