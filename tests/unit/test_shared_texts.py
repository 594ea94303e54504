"""Texts that several releases share, when the release that holds them is refreshed."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit_project import commit, rebase, run_git
from port_project import MOVED, A, Project

from patchkit.port import port
from patchkit.refresh import Refresh, plan_refresh, write_refresh
from patchkit.shared_texts import releases_of_files
from patchkit.verify import verify_releases
from patchkit.work_tree import open_work_tree


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Release 1; 2.0 and 3.0 share its first and third text, a.py has moved lines."""
    made = Project(tmp_path, monkeypatch)
    for version, lines in ("2.0", 3), ("3.0", 4):
        made.publish(version, {**MOVED, "vllm/a.py": b"head = 0\n" * lines + A})
        port(made.releases, "1", version)
    assert series(made, "2.0") == series(made, "3.0") == SHARED
    return made


SHARED = ["../v1/0001-new-file.patch", "0002-one.patch", "../v1/0003-two.patch"]


def series(project: Project, release: str) -> list[str]:
    text = (project.releases.release[release].path / "series").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def refresh(project: Project, tree: str) -> Refresh:
    planned = plan_refresh(
        project.releases, open_work_tree(project.folder / "build" / tree)
    )
    write_refresh(planned)
    return planned


def amend(project: Project, tree: str, subject: str, files: dict[str, bytes]) -> None:
    folder = project.folder / "build" / tree
    for path, data in files.items():
        (folder / path).write_bytes(data)
    run_git(folder, "add", "-A")
    found = run_git(folder, "log", "--format=%h", f"--grep=^{subject}$").strip()
    run_git(folder, "commit", "-q", f"--fixup={found}")
    run_git(folder, "rebase", "-q", "-i", "--autosquash", "pinned")


def errors(project: Project, release: str) -> set[str]:
    found = verify_releases([release], offline=True).findings
    # Words of a ledger that nobody filled in are not what is tested here.
    return {each.code for each in found if each.severity == "error"} - {"S505"}


def test_followers_take_a_text_that_fits(project: Project) -> None:
    amend(project, "one", "New file", {"vllm/new.py": b"n = 2\n"})
    done = refresh(project, "one")
    assert done.written == ("patches/v1/0001-new-file.patch",)
    assert [note.split()[0] for note in done.notes] == ["2.0", "3.0"]
    assert releases_of_files(project.releases, done.written) == ["1", "2.0", "3.0"]
    assert errors(project, "2.0") == errors(project, "3.0") == set()


def test_a_text_that_does_not_fit_leaves_one_old_copy(project: Project) -> None:
    old = (project.folder / "patches/v1/0003-two.patch").read_bytes()
    edited = A.replace(b"a20 = 20\n", b"a20 = 20\none = 1\n") + b"a41 = 41\n"
    amend(project, "one", "Two", {"vllm/a.py": edited})
    done = refresh(project, "one")
    assert "patches/v2.0/0003-two.patch" in done.written
    assert (project.folder / "patches/v2.0/0003-two.patch").read_bytes() == old
    assert series(project, "2.0") == [*SHARED[:2], "0003-two.patch"]
    assert series(project, "3.0") == [*SHARED[:2], "../v2.0/0003-two.patch"]
    assert "0003-two.patch" in (project.folder / "patches/v2.0/ledger.toml").read_text()
    assert any("does not fit" in note for note in done.notes)
    assert errors(project, "2.0") == errors(project, "3.0") == set()


def test_of_two_new_texts_the_one_that_fits_is_followed(project: Project) -> None:
    edited = A.replace(b"a20 = 20\n", b"a20 = 20\none = 1\n") + b"a41 = 41\n"
    amend(project, "one", "New file", {"vllm/new.py": b"n = 2\n"})
    amend(project, "one", "Two", {"vllm/a.py": edited})
    refresh(project, "one")
    assert series(project, "2.0") == [*SHARED[:2], "0003-two.patch"]
    assert series(project, "3.0") == [*SHARED[:2], "../v2.0/0003-two.patch"]
    assert errors(project, "2.0") == errors(project, "3.0") == set()


def test_references_follow_a_new_number(project: Project) -> None:
    tree = project.folder / "build" / "one"
    commit(tree, "Zero", {"vllm/zero.py": b"z = 0\n"})
    ids = run_git(tree, "log", "--reverse", "--format=%h", "pinned..").split()
    rebase(tree, [f"pick {each}" for each in (ids[-1], *ids[:-1])])
    refresh(project, "one")
    new = ["../v1/0002-new-file.patch", "0002-one.patch", "../v1/0004-two.patch"]
    # The names of 2.0's own texts are as they were: their order still rises.
    assert series(project, "2.0") == series(project, "3.0") == new
    assert errors(project, "2.0") == set()


def test_a_dropped_text_stays_where_it_is_used(project: Project) -> None:
    tree = project.folder / "build" / "one"
    ids = run_git(tree, "log", "--reverse", "--format=%h", "pinned..").split()
    rebase(tree, [f"pick {each}" for each in ids[1:]])
    refresh(project, "one")
    assert not (project.folder / "patches/v1/0001-new-file.patch").exists()
    assert series(project, "2.0")[0] == "0001-new-file.patch"
    assert series(project, "3.0")[0] == "../v2.0/0001-new-file.patch"
    assert errors(project, "2.0") == errors(project, "3.0") == set()


def test_a_release_that_shares_is_not_the_owner(project: Project) -> None:
    amend(
        project,
        "vllm-2.0-capture",
        "One",
        {"vllm/a.py": MOVED["vllm/a.py"] + b"x = 1\n"},
    )
    done = refresh(project, "vllm-2.0-capture")
    assert done.written == ("patches/v2.0/0002-one.patch",)
    assert series(project, "3.0") == SHARED
