"""Patched images: what is in the one layer, what stays, and what is refused."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from conftest import ROOT
from patchkit import image_labels as labels
from patchkit.errors import EnvironmentProblem, KitError, Refused, UsageError
from patchkit.image_build import SeriesRefused, build_image
from patchkit.image_layer import TIME_STAMP
from patchkit.plan import make_plan
from patchkit.series import load_series
from patchkit.upstream import open_source

IMAGE = Path(__file__).parents[2] / "tools" / "image.py"


def saved(client, reference: str) -> tuple[list[tarfile.TarInfo], dict, dict]:
    """Of ``docker save``: the last layer's entries, their bytes, the configuration."""
    raw = b"".join(client.images.get(reference).save())
    with tarfile.open(fileobj=io.BytesIO(raw)) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))[0]
        config = json.load(outer.extractfile(manifest["Config"]))
        layer = outer.extractfile(manifest["Layers"][-1]).read()
    with tarfile.open(fileobj=io.BytesIO(layer)) as inner:
        entries = inner.getmembers()
        data = {e.name: inner.extractfile(e).read() for e in entries if e.isfile()}
    return entries, data, config


@pytest.fixture(scope="module")
def wanted(release) -> dict[str, bytes]:
    series = load_series(release)
    source = open_source(release, version="0.25.0", paths=series.paths)
    plan = make_plan(series.patches, source, policy="exact")
    return {file.path: file.after.data for file in plan.changes if file.after}


def test_one_layer_of_the_changed_files(
    client, release, base_image, reference, wanted
) -> None:
    odd = {"vllm/config/profiler.py": (0o640, 1234, 5678)}
    base = base_image(
        odd=odd, settings=('ENTRYPOINT ["vllm"]', "USER 7", 'ENV A="b c"')
    )
    built = build_image(release, base=base, reference=reference)
    entries, data, config = saved(client, reference)
    assert data == {f"{ROOT}/{path}": content for path, content in wanted.items()}
    assert built.files == [f"/{name}" for name in sorted(data)]
    assert built.layer_bytes == sum(map(len, data.values()))
    by_name = {entry.name: entry for entry in entries}
    for path in wanted:
        entry = by_name[f"{ROOT}/{path}"]
        mode, uid, gid = odd.get(path, (0o644, 0, 0))
        assert (entry.mode & 0o7777, entry.uid, entry.gid) == (mode, uid, gid)
        assert entry.mtime == TIME_STAMP
    # Besides files there are the folders above them, as the base has them.
    folders = {name for name in by_name if name not in data}
    assert all(
        any(file.startswith(f"{folder}/") for file in data) for folder in folders
    )
    assert config["config"]["Entrypoint"] == ["vllm"]
    assert config["config"]["User"] == "7"
    assert not config["config"].get("Cmd")
    names = config["config"]["Labels"]
    assert names[labels.BASE_NAME] == base
    assert names[labels.BASE_DIGEST] == client.images.get(base).id
    assert names[labels.RELEASE] == "0.25"
    assert names[labels.PATCH_SET] == load_series(release).digest


def test_two_builds_give_the_same_layer(client, release, base_image, made) -> None:
    base = base_image()
    diff_ids = set()
    for number in range(2):
        name = f"patchkit-test:twice-{number}"
        made.append(name)
        build_image(release, base=base, reference=name)
        diff_ids.add(client.images.get(name).attrs["RootFS"]["Layers"][-1])
    assert len(diff_ids) == 1


def test_source_date_epoch(client, release, base_image, reference, monkeypatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    build_image(release, base=base_image(), reference=reference)
    entries, _, _ = saved(client, reference)
    assert {entry.mtime for entry in entries if entry.isfile()} == {1700000000}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        build_image(release, base=base_image(), reference=reference)


def refused(client, release, base: str, reference: str, kind: type[KitError]) -> str:
    """The refusal of a base; no image and no container may be left."""
    containers = {c.id for c in client.containers.list(all=True)}
    with pytest.raises(kind) as caught:
        build_image(release, base=base, reference=reference)
    assert not client.images.list(reference)
    assert {c.id for c in client.containers.list(all=True)} == containers
    return str(caught.value)


def test_another_version(client, release, base_image, reference) -> None:
    base = base_image({"vllm/_version.py": b"__version__ = version = '0.24.0'\n"})
    said = refused(client, release, base, reference, Refused)
    assert "holds vLLM 0.24.0; release 0.25 is for 0.25.0 and 0.25.1" in said


def test_no_vllm_at_all(client, release, base_image, reference) -> None:
    base = base_image({"vllm/__init__.py": None})
    said = refused(client, release, base, reference, Refused)
    assert "no vllm package in the image" in said


def test_patched_already_by_its_label(release, base_image, reference, client) -> None:
    build_image(release, base=base_image(), reference=reference)
    said = refused(client, release, reference, f"{reference}-again", Refused)
    assert "is patched already" in said


def test_patched_already_by_its_files(
    client, release, base_image, reference, wanted
) -> None:
    said = refused(client, release, base_image(wanted), reference, Refused)
    assert "is patched already" in said


def test_partly_patched(client, release, base_image, reference, wanted) -> None:
    first = load_series(release).patches[0]
    part = {change.path: wanted[change.path] for change in first.files}
    said = refused(client, release, base_image(part), reference, Refused)
    assert "is partly patched" in said


def test_a_file_that_drifted(client, release, base_image, reference, pinned) -> None:
    path = "vllm/config/profiler.py"
    base = base_image({path: pinned[path] + b"# drift\n"})
    with pytest.raises(SeriesRefused) as caught:
        build_image(release, base=base, reference=reference)
    assert {finding.code for finding in caught.value.findings} == {"T220"}
    built = build_image(release, base=base, reference=reference, policy="context")
    assert built.policy == "context"
    _, data, _ = saved(client, reference)
    assert data[f"{ROOT}/{path}"].endswith(b"# drift\n")


def test_no_registry(client, release, reference) -> None:
    base = "localhost:1/nothing@sha256:" + "0" * 64
    said = refused(client, release, base, reference, EnvironmentProblem)
    assert said.startswith("cannot pull localhost:1/nothing")
    assert "\n" not in said


def test_no_engine(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(IMAGE), "--version", "0.25", "--base", "local"],
        env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith(
        "image.py: no container engine answers"
    )


def test_a_reference_that_is_none(client, release, reference) -> None:
    refused(client, release, "UPPER/Case::", reference, KitError)


def test_unchecked_bytecode_is_made_checked(
    client, release, base_image, reference, pinned
) -> None:
    """Python's own rule is the reference: with flag 3 it compares the source again."""
    path = "vllm/config/profiler.py"
    code = importlib.util.source_hash(pinned[path])
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + code
    pyc = "vllm/config/__pycache__/profiler.cpython-312.pyc"
    base = base_image({pyc: header + b"code", pyc.replace("312", "310"): b"\0" * 16})
    built = build_image(release, base=base, reference=reference)
    assert f"unchecked bytecode made checked: {pyc}" in built.notes
    _, data, _ = saved(client, reference)
    assert data[f"{ROOT}/{pyc}"][4:8] == (3).to_bytes(4, "little")
    assert not any(name.endswith("310.pyc") for name in data)


def test_nothing_of_the_kit_is_left(client, release, base_image, reference) -> None:
    build_image(release, base=base_image(), reference=reference)
    _, data, config = saved(client, reference)
    assert not [name for name in data if "patchkit" in name or "tools" in name]
    digest = hashlib.sha256(b"").hexdigest()
    assert digest not in str(config["rootfs"])
