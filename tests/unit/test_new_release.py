"""``make new-release``: what is missing, ports of it, versions that fit, the PR."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from kit_project import FILES
from local_index import make_sdist
from packaging.version import Version
from port_project import CONFLICT, MOVED, Project

from patchkit.index_versions import IndexedSdist, newest_sdist
from patchkit.new_release import Arrival, find_missing, take_in
from patchkit.releases import PROJECT, load_releases

SCRIPT = PROJECT / ".github" / "open-pull-request.sh"


def indexed(*versions: str) -> list[IndexedSdist]:
    return [
        IndexedSdist(Version(each), f"vllm-{each}.tar.gz", f"{n:064x}")
        for n, each in enumerate(versions)
    ]


def test_what_the_kit_lacks() -> None:
    releases = load_releases()
    known = {each: r for r in releases.release.values() for each in r.versions}
    listed = indexed("0.1.0", "0.25.0", "0.25.1", "0.25.7", "99.1.0", "99.1.1")
    missing = find_missing(releases, listed)
    assert "0.25.0" in known
    assert [(each.kind, str(each)) for each in missing] == [
        ("version", "0.25 (0.25.7)"),
        ("release", "99.1 (99.1.0, 99.1.1)"),
    ]
    assert newest_sdist("99.1", listed).version == Version("99.1.1")
    assert newest_sdist("v99.1.0", listed).version == Version("99.1.0")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


def publish(project: Project, versions: dict[str, dict[str, bytes]]) -> None:
    listed = []
    for version, files in versions.items():
        name = f"vllm-{version}.tar.gz"
        data = make_sdist({**FILES, **files}, top=f"vllm-{version}")
        (project.folder / "cache/vllm-patchkit/sdists" / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        listed.append(IndexedSdist(Version(version), name, digest))
    project.patch.setattr("patchkit.port.list_indexed", lambda: listed)
    project.patch.setattr("patchkit.index_versions.list_indexed", lambda: listed)
    project.listed = listed


def run(project: Project) -> dict[str, Arrival]:
    missing = find_missing(project.releases, project.listed)
    arrivals = take_in(lambda: project.releases, missing, lambda _: None)
    return {each.missing.release: each for each in arrivals}


@pytest.fixture
def renamed(project: Project) -> Project:
    """The release is called 1.0, as an index tells releases by two numbers."""
    file = project.folder / "releases.toml"
    file.write_text(file.read_text().replace('release."1"', 'release."1.0"'))
    return project


def test_ports_of_two_releases(renamed: Project) -> None:
    """The second has what the first had to leave out: it comes from before that."""
    publish(renamed, {"2.0.0": CONFLICT, "2.1.0": MOVED})
    arrivals = run(renamed)
    assert arrivals["2.0"].done == (
        "exact: new-file",
        "moved: one",
        "left out: two",
    )
    assert any("left out: two" in row for row in arrivals["2.0"].todo)
    assert arrivals["2.1"].done == ("exact: new-file", "moved: one", "exact: two")
    assert list(renamed.releases.release) == ["1.0", "2.0", "2.1"]
    assert run(renamed) == {}


def test_a_new_version_that_fits_is_added(renamed: Project) -> None:
    before = (renamed.folder / "releases.toml").read_text()
    publish(renamed, {"1.0.1": {"README.md": b"more\n"}, "1.0.2": MOVED})
    arrival = run(renamed)["1.0"]
    assert arrival.done == ("added: 1.0.1, which the series fits",)
    assert arrival.todo == (
        "to do: the series of 1.0 does not fit 1.0.2: make drift FROM=1.0 TO=1.0.2",
    )
    release = renamed.releases.release["1.0"]
    assert release.versions == ("1.0.1", "1.0")
    after = (renamed.folder / "releases.toml").read_text()
    kept = [row for row in before.split("\n") if not row.startswith("versions")]
    assert [row for row in kept if row not in after.split("\n")] == []


def test_one_that_fails_stops_no_other(renamed: Project) -> None:
    publish(renamed, {"2.0.0": MOVED, "2.1.0": MOVED})
    (renamed.folder / "build" / "vllm-2.0.0-capture").mkdir(parents=True)
    arrivals = run(renamed)
    assert "is no work tree of this command" in arrivals["2.0"].failed
    assert arrivals["2.1"].failed == ""
    assert list(renamed.releases.release) == ["1.0", "2.1"]


class PullRequest:
    """A clone with a remote of its own; ``gh`` is a stand-in that notes its words."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clone = folder / "clone"
        self.said = folder / "gh.log"
        run_git(folder, "init", "-q", "--bare", "remote")
        run_git(folder, "clone", "-q", str(folder / "remote"), str(self.clone))
        (self.clone / "patches").mkdir()
        (self.clone / "releases.toml").write_text("a\n")
        run_git(self.clone, "add", "-A")
        run_git(self.clone, "commit", "-q", "-m", "first")
        stand_in = folder / "bin" / "gh"
        stand_in.parent.mkdir()
        stand_in.write_text(
            f'#!/bin/sh\nif [ "$2" = view ]; then cat {folder}/state; exit; fi\n'
            f'printf "%s " "$@" >> {self.said}; echo >> {self.said}\n'
        )
        stand_in.chmod(0o755)
        (folder / "state").write_text("")

    def open(self) -> str:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", str(SCRIPT), "summary.md"],
            cwd=self.clone,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return self.said.read_text() if self.said.exists() else done.stdout


def run_git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@localhost")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_pull_request_script(tmp_path: Path) -> None:
    request = PullRequest(tmp_path)
    (request.clone / "summary.md").write_text("text\n")
    assert request.open() == "nothing new\n"
    (request.clone / "patches" / "x.patch").write_text("x\n")
    assert "pr create --head new-release" in request.open()
    remote = tmp_path / "remote"
    files = run_git(remote, "ls-tree", "-r", "--name-only", "new-release").split()
    assert files == ["patches/x.patch", "releases.toml"]
    (request.clone / "patches" / "y.patch").write_text("y\n")
    (tmp_path / "state").write_text("OPEN\n")
    assert "pr edit new-release --body-file summary.md" in request.open()
