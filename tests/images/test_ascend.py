"""Images of the flavour `ascend`, on the stand-in for CANN: built, and their engine."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from patchkit import image_labels as labels
from patchkit.errors import EnvironmentProblem, Refused
from patchkit.image_build import Built, build_image, default_reference
from patchkit.image_run import run_inside
from patchkit.series import load_series
from patchkit.simulated_cann import PACKAGE_ROOT, simulated_cann_image
from patchkit.smoke import smoke_test
from patchkit.upstream import fetch_sdist

# Making the stand-in the first time takes minutes.
pytestmark = pytest.mark.timeout(3000)

CLONE = Path(__file__).parent / "editable_clone"
ROOT = "/vllm-workspace/vllm"
CHECKS = 18


@pytest.fixture(scope="module")
def stand_in(client, release, need) -> str:
    try:
        return simulated_cann_image(client, release)
    except EnvironmentProblem as error:
        need(False, str(error))
        raise


@pytest.fixture(scope="module")
def built(stand_in, release) -> Built:
    return build_image(release, flavour="ascend", base="local")


def failed(release, reference: str) -> list[object]:
    smoke = smoke_test(release, reference, "ascend")
    assert len(smoke.checks) == CHECKS
    return [check for check in smoke.checks if not check.passed]


def test_the_engine_on_the_simulated_npu(built, release) -> None:
    assert failed(release, built.reference) == []


def test_what_it_is_made_of(client, built, release, stand_in) -> None:
    image = client.images.get(built.reference)
    assert built.reference == default_reference(release, "ascend", simulated=True)
    assert built.reference.endswith("-simulated-cann")
    assert built.version == image.labels[labels.VERSION] == "0.25.1+empty"
    assert built.package_root == PACKAGE_ROOT
    assert image.labels[labels.FLAVOUR] == "ascend"
    assert image.labels[labels.PATCH_SET] == load_series(release, "ascend").digest
    assert "no CANN and no NPU" in image.labels[labels.SIMULATED]
    assert image.labels[labels.CANN_NAME] == stand_in
    assert image.labels[labels.CANN_DIGEST] == client.images.get(stand_in).id
    # The patched files alone, on what Dockerfile.ascend made.
    below = client.images.get(image.labels[labels.BASE_NAME])
    assert image.attrs["RootFS"]["Layers"][:-1] == below.attrs["RootFS"]["Layers"]
    assert image.attrs["Config"]["Env"] == below.attrs["Config"]["Env"]


def test_neither_sdist_nor_wheel_is_left(client, built) -> None:
    command = (
        "find / -name 'vllm-*.whl' -o -name 'vllm-*.tar.gz' | grep -v ^/proc; true"
    )
    found = client.containers.run(
        built.reference, ["sh", "-c", command], network_mode="none", remove=True
    )
    assert found == b""


def context(release, version: str) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in CLONE.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                tar.add(path, path.relative_to(CLONE).as_posix())
        tar.add(fetch_sdist(release.find_sdist(version)), f"vllm-{version}.tar.gz")
    buffer.seek(0)
    return buffer


@pytest.fixture
def clone(client, release, stand_in, made):
    """Makes an image where vLLM is an editable clone, at a tag, beside the plugin."""

    def make(tag: str) -> str:
        name = f"patchkit-test:editable-{tag}"
        made.append(name)
        client.images.build(
            fileobj=context(release, "0.25.1"),
            custom_context=True,
            tag=name,
            rm=True,
            buildargs={"BASE": stand_in, "VERSION": "0.25.1", "TAG": tag},
        )
        return name

    return make


def test_an_editable_clone_beside_the_plugin(client, release, clone, reference) -> None:
    base = clone("v0.25.1")
    theirs = run_inside(client, client.images.get(base), "npu_engine.py", PLATFORM)
    assert theirs["platform"] == "vllm_ascend.platform.StandInPlatform"
    done = build_image(release, flavour="ascend", base=base, reference=reference)
    assert done.package_root == ROOT
    assert done.version == "0.25.1+empty"
    assert f"{ROOT} is a git work tree at v0.25.1" in done.notes
    (note,) = [note for note in done.notes if "vllm_ascend brings a platform" in note]
    kept = "VLLM_PLUGINS=lora_filesystem_resolver,lora_hf_hub_resolver"
    assert kept.replace("=", "='") in note
    image = client.images.get(reference)
    added = set(image.attrs["Config"]["Env"])
    assert added - set(client.images.get(base).attrs["Config"]["Env"]) == {kept}
    assert failed(release, reference) == []


def test_a_clone_at_another_tag(client, release, clone, reference) -> None:
    base = clone("v0.24.0")
    with pytest.raises(Refused, match=r"\(v0.24.0\), not at v0.25.1 or v0.25.0"):
        build_image(release, flavour="ascend", base=base, reference=reference)
    assert not client.images.list(reference)


PLATFORM = '{"mode": "platform"}'
