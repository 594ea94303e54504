"""``make refresh``: the work tree's commits become the patch files, or nothing does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kit_project import (
    FILES,
    commit,
    make_project,
    new_tree,
    patch_files,
    rebase,
    run_git,
)

from patchkit.errors import Refused, UsageError
from patchkit.refresh import Refresh, plan_refresh, write_refresh
from patchkit.releases import Release, Releases, load_releases
from patchkit.series import load_series
from patchkit.work_tree import WorkTree, make_work_tree, open_work_tree

A, B = FILES["vllm/a.py"], FILES["vllm/b.py"]


class Kit:
    """A project, its one release, and the release's work tree."""

    def __init__(self, releases: Releases, target: Path) -> None:
        self.releases = releases
        self.release: Release = releases.release["1"]
        self.tree = target

    def refresh(self) -> Refresh:
        refresh = plan_refresh(self.releases, open_work_tree(self.tree))
        write_refresh(refresh)
        return refresh

    def refused(self, words: str) -> None:
        """A refresh is refused with ``words`` in the reason, and changes nothing."""
        before = patch_files(self.release)
        with pytest.raises(Refused, match=words):
            plan_refresh(self.releases, open_work_tree(self.tree))
        assert patch_files(self.release) == before

    @property
    def series(self) -> list[str]:
        lines = (self.release.path / "series").read_text().split("\n")
        return [line for line in lines if line and not line.startswith("#")]

    def commits(self) -> list[str]:
        return run_git(self.tree, "rev-list", "--reverse", "pinned..").split()


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    """Three patches: two of a.py, one of b.py and a new file."""
    releases = make_project(tmp_path, monkeypatch)
    made = Kit(releases, tmp_path / "build" / "tree")
    new_tree(made.release, made.tree)
    one = A.replace(b"a5 = 5\n", b"a5 = 5\none = 1\n")
    commit(made.tree, "One", {"vllm/a.py": one})
    two = one.replace(b"a30 = 30\n", b"a30 = 30\ntwo = 2\n")
    commit(made.tree, "Two words & more", {"vllm/a.py": two})
    three = B.replace(b"b9 = 9\n", b"b9 = 9\nthree = 3\n")
    commit(made.tree, "Three", {"vllm/b.py": three, "vllm/new.py": b"n = 1\n"})
    made.refresh()
    return made


def apply_with_git(kit: Kit, folder: Path) -> dict[str, bytes]:
    """What git itself makes of the patch files on the pinned source."""
    for path, data in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    for name in kit.series:
        patch = kit.release.path / name
        subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)
    return read_files(folder)


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


def test_commits_become_files(kit: Kit, tmp_path: Path) -> None:
    assert kit.series == [
        "0001-one.patch",
        "0002-two-words-more.patch",
        "0003-three.patch",
    ]
    header = (
        (kit.release.path / "0001-one.patch").read_text().partition("diff --git")[0]
    )
    assert header == "Subject: One\n\nWhat One does.\n\nUpstream: nothing\n---\n"
    assert apply_with_git(kit, tmp_path / "applied") == read_files(kit.tree)


def test_the_diff_is_what_git_writes(kit: Kit) -> None:
    ids = ["pinned", *kit.commits()]
    for number, name in enumerate(kit.series):
        words = ("diff", "--full-index", ids[number], ids[number + 1])
        diff = run_git(kit.tree, *words)
        assert (kit.release.path / name).read_text().endswith("---\n" + diff)


def test_a_new_patch_asks_for_its_ledger_entry(kit: Kit) -> None:
    series = load_series(kit.release)
    found = {(each.code, each.message) for each in series.findings}
    assert ("S505", '"0001-one.patch".why is missing') in found
    assert {code for code, _ in found} == {"S505"}


def test_unchanged_commits_give_unchanged_bytes(kit: Kit) -> None:
    before = patch_files(kit.release)
    refresh = kit.refresh()
    assert refresh.written == ()
    assert [patch.fate for patch in refresh.patches] == ["kept"] * 3
    # New ids all along, and every diff made anew.
    run_git(kit.tree, "rebase", "-q", "--no-ff", "pinned", "--exec", "true")
    assert len(set(kit.commits())) == 3
    refresh = kit.refresh()
    assert (refresh.written, patch_files(kit.release)) == ((), before)


def test_made_again_from_the_files_the_tree_is_the_same(
    kit: Kit, tmp_path: Path
) -> None:
    for entry in ("why", "tested", "upstream", "remove_when"):
        ledger = kit.release.path / "ledger.toml"
        ledger.write_text(ledger.read_text().replace(f'{entry} = ""', f'{entry} = "x"'))
    again = make_work_tree(kit.release, tmp_path / "again")
    assert read_files(again.path) == read_files(kit.tree)
    log = ("log", "--format=%B", "pinned..")
    assert run_git(again.path, *log) == run_git(kit.tree, *log)
    other = make_work_tree(kit.release, tmp_path / "other")
    assert other.record == again.record


def test_amended_earlier_commit(kit: Kit, tmp_path: Path) -> None:
    first, second, third = kit.commits()
    text = (kit.tree / "vllm/a.py").read_bytes().replace(b"one = 1", b"one = 11")
    script = tmp_path / "edit.sh"
    script.write_text(
        "sed -i 's/^one = 1$/one = 11/' vllm/a.py; git commit -qa --amend --no-edit\n"
    )
    rebase(
        kit.tree,
        [f"pick {first}", f"exec sh {script}", f"pick {second}", f"pick {third}"],
    )
    refresh = kit.refresh()
    assert [patch.fate for patch in refresh.patches] == ["changed", "changed", "kept"]
    assert (kit.tree / "vllm/a.py").read_bytes() == text
    assert apply_with_git(kit, tmp_path / "applied") == read_files(kit.tree)


def test_reordered(kit: Kit, tmp_path: Path) -> None:
    first, second, third = kit.commits()
    rebase(kit.tree, [f"pick {third}", f"pick {first}", f"pick {second}"])
    ledger = kit.release.path / "ledger.toml"
    ledger.write_text(
        ledger.read_text().replace(
            '["0003-three.patch"]\nwhy = ""',
            '# of three\n["0003-three.patch"]\nwhy = "w"',
        )
    )
    kit.refresh()
    assert kit.series == [
        "0001-three.patch",
        "0002-one.patch",
        "0003-two-words-more.patch",
    ]
    assert sorted(patch_files(kit.release)) == sorted(
        [*kit.series, "series", "ledger.toml"]
    )
    text = ledger.read_text()
    assert '# of three\n["0001-three.patch"]\nwhy = "w"' in text
    assert text.index("0001-three") < text.index("0002-one") < text.index("0003-two")
    assert apply_with_git(kit, tmp_path / "applied") == read_files(kit.tree)


def test_dropped_and_numbers_stay(kit: Kit) -> None:
    first, _, third = kit.commits()
    rebase(kit.tree, [f"pick {first}", f"pick {third}"])
    refresh = kit.refresh()
    assert refresh.dropped == ("0002-two-words-more.patch",)
    assert kit.series == ["0001-one.patch", "0003-three.patch"]
    assert "0002" not in (kit.release.path / "ledger.toml").read_text()


def test_split(kit: Kit, tmp_path: Path) -> None:
    run_git(kit.tree, "reset", "-q", "--soft", "HEAD~1")
    run_git(kit.tree, "reset", "-q", "vllm/new.py")
    message = "Three\n\nHalf of it.\n\nUpstream: nothing\n"
    run_git(kit.tree, "commit", "-q", "-F", "-", stdin=message)
    run_git(kit.tree, "add", "-A")
    run_git(
        kit.tree, "commit", "-q", "-m", "Four", "-m", "The rest.", "-m", "Upstream: no"
    )
    refresh = kit.refresh()
    assert [patch.fate for patch in refresh.patches] == [
        "kept",
        "kept",
        "changed",
        "added",
    ]
    assert kit.series[2:] == ["0003-three.patch", "0004-four.patch"]
    assert apply_with_git(kit, tmp_path / "applied") == read_files(kit.tree)


def test_reworded_keeps_its_name(kit: Kit) -> None:
    run_git(
        kit.tree,
        "commit",
        "-q",
        "--amend",
        "-m",
        "Other words",
        "-m",
        "Text.",
        "-m",
        "Upstream: no",
    )
    kit.refresh()
    assert kit.series[2] == "0003-three.patch"


def test_inserted_in_the_middle_numbers_by_place(kit: Kit) -> None:
    first, second, third = kit.commits()
    commit(kit.tree, "Between", {"vllm/c.py": b"c = 1\n"})
    last = kit.commits()[-1]
    rebase(kit.tree, [f"pick {x}" for x in (first, last, second, third)])
    kit.refresh()
    assert kit.series == [
        "0001-one.patch",
        "0002-between.patch",
        "0003-two-words-more.patch",
        "0004-three.patch",
    ]


def test_comments_of_the_series_go_with_their_patch(kit: Kit) -> None:
    file = kit.release.path / "series"
    file.write_text(
        "# Head.\n0001-one.patch\n\n# About two.\n"
        "0002-two-words-more.patch  # here\n0003-three.patch\n"
    )
    tree = kit.tree
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    for entry in ("why", "tested", "upstream", "remove_when"):
        ledger = kit.release.path / "ledger.toml"
        ledger.write_text(ledger.read_text().replace(f'{entry} = ""', f'{entry} = "x"'))
    make_work_tree(kit.release, tree)
    assert kit.refresh().written == ()
    first, second, third = kit.commits()
    rebase(tree, [f"pick {x}" for x in (second, first, third)])
    kit.refresh()
    assert file.read_text() == (
        "# Head.\n\n# About two.\n0001-two-words-more.patch  # here\n"
        "0002-one.patch\n0003-three.patch\n"
    )


def test_dirty_tree(kit: Kit) -> None:
    (kit.tree / "vllm/a.py").write_bytes(b"x = 1\n")
    kit.refused("not committed: vllm/a.py")
    run_git(kit.tree, "checkout", "-q", ".")
    (kit.tree / "vllm/stray.py").write_bytes(b"x = 1\n")
    kit.refused("not committed: vllm/stray.py")
    (kit.tree / "vllm/stray.py").unlink()
    (kit.tree / "vllm" / "__pycache__").mkdir()
    (kit.tree / "vllm" / "__pycache__" / "a.pyc").write_bytes(b"")
    assert kit.refresh().written == ()


def test_merge_commit(kit: Kit) -> None:
    run_git(kit.tree, "checkout", "-q", "-b", "side", "HEAD~1")
    commit(kit.tree, "Side", {"vllm/c.py": b"c = 1\n"})
    run_git(kit.tree, "checkout", "-q", "series")
    run_git(kit.tree, "merge", "-q", "--no-edit", "side")
    kit.refused("is a merge")


@pytest.mark.parametrize("path", ["notes.txt", "scratch/x.py", ".hidden"])
def test_file_outside_of_the_pinned_tree(kit: Kit, path: str) -> None:
    commit(kit.tree, "Stray", {path: b"x = 1\n"})
    kit.refused(f"{path} lies outside the pinned tree")


def test_change_outside_of_the_package_is_said(kit: Kit) -> None:
    commit(kit.tree, "Readme", {"README.md": b"another\n"})
    refresh = kit.refresh()
    assert any("touches README.md" in note for note in refresh.notes)


def test_links_submodules_and_binary_files(kit: Kit) -> None:
    (kit.tree / "vllm" / "link.py").symlink_to("a.py")
    commit(kit.tree, "Link", {})
    kit.refused("link.py is a symbolic link")
    run_git(kit.tree, "reset", "-q", "--hard", "HEAD~1")
    head = run_git(kit.tree, "rev-parse", "HEAD").strip()
    run_git(kit.tree, "update-index", "--add", "--cacheinfo", f"160000,{head},vllm/sub")
    run_git(kit.tree, "commit", "-q", "-m", "Sub")
    (kit.tree / "vllm" / "sub").mkdir()
    kit.refused("vllm/sub is a submodule")
    run_git(kit.tree, "reset", "-q", "--hard", "HEAD~1")
    commit(kit.tree, "Binary", {"vllm/x.bin": b"\0\1\2"})
    kit.refused("(?s)Binary.*no diff that the kit can hold")


def test_patch_file_edited_by_hand(kit: Kit) -> None:
    file = kit.release.path / "0002-two-words-more.patch"
    file.write_bytes(file.read_bytes().replace(b"What Two", b"What two"))
    commit(kit.tree, "Five", {"vllm/c.py": b"c = 1\n"})
    kit.refused("edited since the tree was made: patches/v1/0002-two-words-more.patch")


def test_series_file_edited_by_hand(kit: Kit) -> None:
    file = kit.release.path / "series"
    file.write_text("0001-one.patch\n")
    kit.refused("edited since the tree was made: patches/v1/series")


def test_a_file_in_the_way_is_not_overwritten(kit: Kit) -> None:
    (kit.release.path / "0004-five.patch").write_text("mine\n")
    commit(kit.tree, "Five", {"vllm/c.py": b"c = 1\n"})
    kit.refused("0004-five.patch is there, and in no series")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("commit", "-q", "--allow-empty", "-m", "Empty"), "changes nothing"),
        (("commit", "-q", "--allow-empty", "--fixup", "HEAD"), "melted"),
        (
            ("commit", "-q", "--allow-empty", "-m", "S", "-m", "--- a/x"),
            "would be read as the diff",
        ),
    ],
)
def test_commits_that_are_no_patches(
    kit: Kit, words: tuple[str, ...], reason: str
) -> None:
    run_git(kit.tree, *words)
    kit.refused(reason)


def test_in_the_middle_of_a_rebase(kit: Kit) -> None:
    editor = kit.tree.parent / "stop.sh"
    editor.write_text('sed -i "1s/^pick/edit/" "$1"\n')
    run_git(
        kit.tree, "-c", f"sequence.editor=sh {editor}", "rebase", "-q", "-i", "pinned"
    )
    kit.refused("a rebase is under way")


def test_rewritten_root(kit: Kit) -> None:
    run_git(kit.tree, "checkout", "-q", "--orphan", "other")
    run_git(kit.tree, "commit", "-q", "-m", "All")
    kit.refused("does not descend from the pinned source")


def test_no_work_tree(kit: Kit, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no work tree"):
        open_work_tree(tmp_path / "nowhere")
    (tmp_path / "plain").mkdir()
    with pytest.raises(Refused, match="no work tree of this command"):
        open_work_tree(tmp_path / "plain")


def test_make_tree_keeps_work(kit: Kit) -> None:
    tree = make_work_tree(kit.release, kit.tree)
    assert not tree.made
    commit(kit.tree, "Five", {"vllm/c.py": b"c = 1\n"})
    assert not make_work_tree(kit.release, kit.tree).made
    file = kit.release.path / "series"
    file.write_text("# changed\n" + file.read_text())
    with pytest.raises(Refused, match="has commits that its patch files do not have"):
        make_work_tree(kit.release, kit.tree)


def test_round_trip_of_every_release(tmp_path: Path) -> None:
    """The issue's words: tree, refresh, no byte changed."""
    releases = load_releases()
    for release in releases.release.values():
        for flavour in release.flavours:
            target = tmp_path / release.name / flavour
            tree = make_work_tree(release, target, flavour=flavour)
            assert tree.made
            assert plan_refresh(releases, tree).written == ()
            if release.name == "0.25":
                _round_trip_of_new_commits(releases, tree)
            shutil.rmtree(target)


def _round_trip_of_new_commits(releases: Releases, tree: WorkTree) -> None:
    """Each commit made anew by git, with other ids: the files are the same."""
    identity = ("-c", "user.name=A", "-c", "user.email=a@localhost")
    words = ("rebase", "-q", "--no-ff", "--exec", "true", "pinned")
    run_git(tree.path, *identity, *words)
    again = plan_refresh(releases, tree)
    assert again.written == ()
    assert len(again.patches) == len(tree.record.patches)
    old = {patch.commit for patch in tree.record.patches}
    assert not old & {patch.commit for patch in again.patches}
