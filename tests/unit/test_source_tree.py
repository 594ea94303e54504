"""``make tree``: a whole patched tree or none, and nobody's edits are lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from local_index import FILE, FILES, make_sdist, pin
from small_disk import Need, small_disk

from patchkit import series as series_module
from patchkit import source_tree
from patchkit.errors import EnvironmentProblem, Refused
from patchkit.releases import PROJECT, Release, load_releases
from patchkit.series import load_series
from patchkit.source_tree import make_tree
from patchkit.upstream import fetch_sdist

GOOD = PROJECT / "tests" / "diffs" / "S508-patch-number" / "good" / "v1"
PATCHED = b"a = 1\nb = 2\nc = 3\nx = 0\nd = 4\ne = 5\nf = 6\n"


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """A project of its own with one patch; the sdist lies in the cache already."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(series_module, "PROJECT", tmp_path)
    monkeypatch.setattr("patchkit.releases.PROJECT", tmp_path)
    folder = tmp_path / "patches" / "v1"
    shutil.copytree(GOOD, folder)
    (folder / "0002-y.patch").unlink()
    (folder / "series").write_text("0001-x.patch\n")
    ledger = (folder / "ledger.toml").read_text()
    (folder / "ledger.toml").write_text(ledger[: ledger.index('["0002')])
    return pinned(tmp_path, make_sdist(links={"link": "m.py"}))


def pinned(tmp_path: Path, data: bytes) -> Release:
    sdists = tmp_path / "cache" / "vllm-patchkit" / "sdists"
    sdists.mkdir(parents=True, exist_ok=True)
    (sdists / FILE).write_bytes(data)
    return pin(data)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "build" / "tree"


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


BESIDE = [".tree.tree.json", "tree"]


def test_made_and_left_as_it_is(release: Release, target: Path) -> None:
    result = make_tree(release, target)
    assert (result.made, result.version, result.patches) == (True, "1.0", 1)
    assert result.digest.startswith("sha256:")
    assert content(target) == {**FILES, "m.py": PATCHED}
    assert (target / "vllm" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (target / "m.py").stat().st_mode & 0o777 == 0o644
    assert target.stat().st_mode & 0o777 == 0o755
    assert names(target.parent) == BESIDE
    before = (target / "m.py").stat().st_mtime_ns
    assert not make_tree(release, target).made
    assert (target / "m.py").stat().st_mtime_ns == before


def test_unpatched(release: Release, target: Path) -> None:
    result = make_tree(release, target, patched=False)
    assert (result.patches, result.digest) == (0, "")
    assert content(target) == FILES
    assert not make_tree(release, target, patched=False).made


def test_only_a_part(release: Release, target: Path) -> None:
    make_tree(release, target, patched=False, only="vllm/")
    assert set(content(target)) == {"vllm/__init__.py", "vllm/run.sh"}


def test_another_tree_takes_the_place_of_an_unedited_one(
    release: Release, target: Path
) -> None:
    make_tree(release, target, patched=False)
    (target / "vllm" / "__pycache__").mkdir()
    (target / "vllm" / "__pycache__" / "x.pyc").touch()
    assert make_tree(release, target).made
    assert content(target) == {**FILES, "m.py": PATCHED}
    assert names(target.parent) == BESIDE


@pytest.mark.parametrize(
    "edit",
    [
        lambda tree: (tree / "m.py").write_bytes(FILES["m.py"][:-1] + b"7"),
        lambda tree: (tree / "new.py").touch(),
        lambda tree: (tree / "pyproject.toml").unlink(),
        lambda tree: (tree / "m.py").chmod(0o755),
        lambda tree: (tree / "l").symlink_to("m.py"),
    ],
    ids=["changed", "added", "removed", "mode", "link"],
)
def test_edits_are_never_lost(edit: object, release: Release, target: Path) -> None:
    assert callable(edit)
    make_tree(release, target, patched=False)
    edit(target)
    before = content(target)
    with pytest.raises(Refused, match="was edited after it was made") as caught:
        make_tree(release, target)
    assert "OUT=" in caught.value.hint
    assert content(target) == before


def test_an_edited_source_is_not_the_pinned_one(release: Release, target: Path) -> None:
    make_tree(release, target, patched=False)
    (target / "m.py").write_bytes(PATCHED)
    with pytest.raises(Refused, match="was edited"):
        make_tree(release, target, patched=False)


def test_edits_beside_the_series_are_welcome(release: Release, target: Path) -> None:
    make_tree(release, target)
    (target / "m.py").write_bytes(PATCHED + b"g = 7\n")
    assert not make_tree(release, target).made
    (target / "m.py").write_bytes(FILES["m.py"])
    with pytest.raises(Refused, match="was edited"):
        make_tree(release, target)


def test_a_changed_series_makes_the_tree_anew(
    release: Release, target: Path, tmp_path: Path
) -> None:
    first = make_tree(release, target)
    patch = tmp_path / "patches" / "v1" / "0001-x.patch"
    patch.write_bytes(patch.read_bytes().replace(b"The name", b"This name"))
    second = make_tree(release, target)
    assert second.made
    assert first.digest != second.digest


def test_an_edited_tree_of_another_series_is_not_this_one(
    release: Release, target: Path, tmp_path: Path
) -> None:
    """The hunks stand there; what else the tree is made of is not known."""
    make_tree(release, target)
    (target / "m.py").write_bytes(PATCHED + b"g = 7\n")
    patch = tmp_path / "patches" / "v1" / "0001-x.patch"
    patch.write_bytes(patch.read_bytes().replace(b"The name", b"This name"))
    with pytest.raises(Refused, match="was edited"):
        make_tree(release, target)


@pytest.mark.parametrize("kind", ["folder", "empty", "file", "link", "dangling"])
def test_what_was_there_before(kind: str, release: Release, target: Path) -> None:
    target.parent.mkdir()
    if kind == "file":
        target.write_text("mine")
    elif kind == "dangling":
        target.symlink_to("nowhere")
    else:
        place = target.parent / "real" if kind == "link" else target
        place.mkdir()
        if kind == "folder":
            (place / "mine").touch()
        if kind == "link":
            target.symlink_to(place)
    with pytest.raises(Refused, match="was not made by this command"):
        make_tree(release, target)
    assert os.path.lexists(target)


def test_a_series_that_does_not_fit(
    release: Release, target: Path, tmp_path: Path
) -> None:
    assert release
    other = pinned(tmp_path, make_sdist({**FILES, "m.py": b"a = 1\n"}))
    with pytest.raises(Refused, match=r"patches/v1/0001-x\.patch:\d+: T2"):
        make_tree(other, target)
    assert names(target.parent) == []


def test_a_series_with_faults(release: Release, target: Path, tmp_path: Path) -> None:
    (tmp_path / "patches" / "v1" / "ledger.toml").unlink()
    with pytest.raises(Refused, match="S505"):
        make_tree(release, target)
    assert not target.parent.exists()


@pytest.mark.parametrize("step", ["unpack_sdist", "commit_to_tree", "_fingerprint"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "in-place-of-another"])
def test_interrupted(
    step: str,
    there: bool,
    release: Release,
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if there:
        make_tree(release, target, patched=False)
    real = getattr(source_tree, step)

    def stop(*arguments: object) -> object:
        if step == "_fingerprint" and arguments == (target,):
            return real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(source_tree, step, stop)
    with pytest.raises(KeyboardInterrupt):
        make_tree(release, target)
    monkeypatch.undo()
    assert names(target.parent) == (BESIDE if there else [])
    if there:
        assert content(target) == FILES


def test_a_failing_rename_keeps_the_old_tree(
    release: Release, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(release, target, patched=False)
    real = Path.rename

    def rename(path: Path, to: Path) -> Path:
        if path.name == "new":
            raise KeyboardInterrupt
        return real(path, to)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        make_tree(release, target)
    assert content(target) == FILES


def test_full_disk(release: Release, tmp_path: Path, need: Need) -> None:
    assert release
    big = pinned(tmp_path, make_sdist({**FILES, "big": bytes(900_000)}))
    with small_disk(tmp_path / "disk", 200, need) as disk:
        with pytest.raises(EnvironmentProblem, match="the disk is full"):
            make_tree(big, disk / "tree")
        assert names(disk) == []


def test_no_source(release: Release, target: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(EnvironmentProblem, match="--offline forbids"):
        make_tree(release, target, offline=True)
    assert not target.parent.exists()


# The command, on the real release


def run_tree(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROJECT / "tools" / "tree.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--version", "0.1"], "no release '0.1'; there are: "),
        (["--version", "0.25", "--flavour", "rocm"], "no flavour 'rocm'"),
        ([], "--version"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    done = run_tree(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_real_tree_is_what_git_makes_of_it(tmp_path: Path, need: Need) -> None:
    """Every file as tar and `git apply` leave it."""
    release = load_releases().find("0.25")
    try:
        archive = fetch_sdist(release.sdist[0])
    except EnvironmentProblem as error:
        need(False, f"no pinned source: {error}")
    target = tmp_path / "tree"
    done = run_tree("--version", "0.25", "--out", str(target), "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    series = load_series(release)
    assert result["patches"] == len(series.patches)
    assert result["made"] is True
    assert "done in" in done.stderr
    plain = tmp_path / "plain"
    plain.mkdir()
    subprocess.run(
        ["tar", "xzf", str(archive), "-C", str(plain), "--strip-components=1"],
        check=True,
    )
    for patch in series.patches:
        subprocess.run(
            ["git", "apply", str(PROJECT / patch.name)],
            cwd=plain,
            check=True,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)},
        )

    def digests(folder: Path) -> dict[str, str]:
        return {
            name: hashlib.sha256(data).hexdigest()
            for name, data in content(folder).items()
            if not name.startswith(".git/")
        }

    assert digests(target) == digests(plain)
