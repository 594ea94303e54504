"""``make port``: moved hunks by themselves, conflicts by a person, nothing half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit_project import MESSAGE, commit, run_git
from port_project import CONFLICT, MOVED, A, B, Project

from patchkit import port as port_module
from patchkit.clean_git import CleanGit
from patchkit.errors import Refused, UsageError
from patchkit.port import PortResult, port
from patchkit.port_report import left_to_do, port_rows
from patchkit.port_state import Pick, PortState
from patchkit.refresh import plan_refresh, write_refresh
from patchkit.series import load_series
from patchkit.work_tree import make_work_tree, open_work_tree


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


def outcomes(result: PortResult) -> list[str]:
    return [pick.outcome for pick in result.state.picks]


def test_moved_hunks_need_no_hand(project: Project) -> None:
    project.publish("2.0", MOVED)
    result = project.port()
    assert outcomes(result) == ["exact", "moved", "exact"]
    release = project.releases.release["2.0"]
    assert release.torch == "2.99.0"


def test_written(project: Project) -> None:
    project.publish("2.0", MOVED)
    before = project.files()
    result = project.port()
    release = project.releases.release["2.0"]
    assert release.versions == ("2.0",)
    assert [image.tag for image in release.image] == ["v2.0"]
    assert all(image.digest is None for image in release.image)
    series = (release.path / "series").read_text().split("\n")[-4:]
    assert series == [
        "../v1/0001-new-file.patch",
        "0002-one.patch",
        "../v1/0003-two.patch",
        "",
    ]
    text = (release.path / "0002-one.patch").read_text()
    assert "@@ -21,6 +21,7 @@" in text
    ledger = (release.path / "ledger.toml").read_text()
    assert 'why = "old why"' in ledger
    assert "old tested" not in ledger
    assert "not run there yet" in ledger
    after = project.files()
    assert {path for path in before if after[path] != before[path]} == {"releases.toml"}
    assert after["releases.toml"].startswith(before["releases.toml"].rstrip())
    assert result.refresh is not None
    assert plan_refresh(project.releases, open_work_tree(project.tree)).written == ()


def test_conflict_stops_and_writes_nothing(project: Project) -> None:
    project.publish("2.0", CONFLICT)
    before = project.files()
    result = project.port()
    assert outcomes(result) == ["exact", "moved", "stopped"]
    assert project.files() == before
    text = (project.tree / "vllm/b.py").read_text()
    assert "<<<<<<< " in text
    assert "b20 = 99" in text
    assert "b20 = 21" in text
    assert "\n>>>>>>> " in text
    said = "\n".join(port_rows(result))
    assert "conflicts in vllm/b.py" in said
    assert "make port FROM=1 TO=2.0" in said
    with pytest.raises(Refused, match=r"conflicts are left in vllm/b\.py"):
        project.port()


def test_resumed_after_resolving(project: Project) -> None:
    project.publish("2.0", CONFLICT)
    project.port()
    file = project.tree / "vllm/b.py"
    file.write_bytes(B.replace(b"b20 = 20\n", b"b20 = 100\n"))
    run_git(project.tree, "add", "vllm/b.py")
    result = project.port()
    assert outcomes(result) == ["exact", "moved", "resolved"]
    text = (project.releases.release["2.0"].path / "0003-two.patch").read_text()
    assert "-b20 = 99\n+b20 = 100\n" in text
    assert text.startswith("Subject: Two\n")
    assert project.port().state.picks == []


def test_markers_that_were_added_are_found(project: Project) -> None:
    project.publish("2.0", CONFLICT)
    project.port()
    run_git(project.tree, "add", "vllm/b.py")
    with pytest.raises(Refused, match=r"vllm/b.py:20: leftover conflict marker"):
        project.port()


def test_committed_by_hand(project: Project) -> None:
    project.publish("2.0", CONFLICT)
    project.port()
    (project.tree / "vllm/b.py").write_bytes(B)
    run_git(project.tree, "add", "vllm/b.py")
    run_git(
        project.tree, "commit", "-q", "-F", "-", stdin=MESSAGE.format(subject="Two")
    )
    assert outcomes(project.port())[-1] == "resolved"


@pytest.mark.parametrize("way", ["skip", "as upstream"])
def test_left_out_by_hand(project: Project, way: str) -> None:
    project.publish("2.0", CONFLICT)
    project.port()
    if way == "skip":
        run_git(project.tree, "cherry-pick", "--skip")
    else:
        (project.tree / "vllm/b.py").write_bytes(CONFLICT["vllm/b.py"])
        run_git(project.tree, "add", "vllm/b.py")
    result = project.port()
    assert outcomes(result)[-1] == "left out"
    assert any("left out: two" in row for row in left_to_do(result))


def test_keep_going_leaves_out_and_a_later_run_takes_up(project: Project) -> None:
    files = {**CONFLICT, "vllm/a.py": A.replace(b"a20 = 20\n", b"a20 = 0\n")}
    project.publish("2.0", files)
    result = project.port(keep_going=True)
    assert outcomes(result) == ["exact", "left out", "left out"]
    assert not run_git(project.tree, "status", "--porcelain")
    result = project.port()
    assert outcomes(result) == ["stopped", "waiting"]
    assert result.stopped is not None
    assert result.stopped.stem == "one"


def test_upstream_has_it(project: Project) -> None:
    has = B.replace(b"b20 = 20\n", b"b20 = 21\n")
    project.publish("2.0", {"vllm/b.py": has})
    result = project.port()
    assert outcomes(result) == ["exact", "exact", "upstream"]
    assert len(list(project.releases.release["2.0"].path.glob("series"))) == 1


def test_a_flavour_on_top_of_a_series_that_was_carried(project: Project) -> None:
    project.publish("2.0", MOVED)
    project.port()
    release = project.releases.release["1"]
    tree = project.folder / "build" / "ascend"
    make_work_tree(release, tree, flavour="ascend", new_series=True)
    commit(tree, "Three", {"vllm/npu.py": b"n = 3\n"})
    write_refresh(plan_refresh(project.releases, open_work_tree(tree)))
    ledger = release.path / "ledger.toml"
    ledger.write_text(ledger.read_text().replace('= ""', '= "said"'))
    before = project.files()
    result = port(project.releases, "1", "2.0", flavour="ascend")
    assert outcomes(result) == ["exact"]
    after = project.files()
    there = {path for path in after if after[path] != before.get(path)}
    assert there == {"patches/v2.0/series-ascend"}
    text = after["patches/v2.0/series-ascend"].decode()
    assert text.splitlines()[-1] == "../v1/0004-three.patch"
    carried = load_series(project.releases.release["2.0"], "ascend").patches
    assert [patch.name for patch in carried] == [
        "patches/v1/0001-new-file.patch",
        "patches/v2.0/0002-one.patch",
        "patches/v1/0003-two.patch",
        "patches/v1/0004-three.patch",
    ]


def test_another_port_in_the_tree(project: Project) -> None:
    project.publish("2.0", CONFLICT)
    project.port()
    state = project.tree / ".git" / "vllm-patchkit-port.json"
    state.write_text(state.read_text().replace('"source": "1"', '"source": "0.9"'))
    with pytest.raises(Refused, match=r"a port from 0.9 to 2.0 is under way"):
        project.port()


@pytest.mark.parametrize("done", [True, False])
def test_killed_in_the_middle_of_a_pick(project: Project, done: bool) -> None:
    """Before git is asked or after it, the next run knows where it is."""
    project.publish("2.0", MOVED)
    original = project.files()
    real = port_module._try

    def dying(git: CleanGit, state: PortState, pick: Pick, *, keep_going: bool) -> None:
        last = pick.stem == "one"
        if last and not done:
            project.patch.setattr(CleanGit, "answer", killed)
        real(git, state, pick, keep_going=keep_going)
        if last:
            raise KeyboardInterrupt

    answer = CleanGit.answer

    def killed(self: CleanGit, *words: str, **more: Any) -> Any:
        if words[0] == "cherry-pick":
            raise KeyboardInterrupt
        return answer(self, *words, **more)

    project.patch.setattr(port_module, "_try", dying)
    with pytest.raises(KeyboardInterrupt):
        project.port()
    assert project.files() == original
    project.patch.setattr(port_module, "_try", real)
    project.patch.setattr(CleanGit, "answer", answer)
    result = project.port()
    assert outcomes(result) == ["exact", "moved", "exact"]
    assert (project.releases.release["2.0"].path / "0002-one.patch").is_file()


def test_unknown_and_same_release(project: Project) -> None:
    project.publish("2.0", MOVED)
    with pytest.raises(UsageError, match="no release '3'"):
        port(project.releases, "1", "3")
    with pytest.raises(UsageError, match="is of release 1 itself"):
        port(project.releases, "1", "1.0")
