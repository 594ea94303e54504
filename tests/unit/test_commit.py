"""Writing to a tree is all or nothing: at every step, for every kind of failure."""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
from pathlib import Path

import pytest

from patchkit import folder_handles, journal
from patchkit.commit import commit_to_tree
from patchkit.errors import EnvironmentProblem, Refused
from patchkit.file_state import EXECUTABLE, REGULAR, FileState
from patchkit.plan_types import Plan, PlannedFile

BEFORE = {
    "pkg/a.py": (b"a = 1\n", 0o640),
    "pkg/b.py": (b"b = 1\n", 0o755),
    "old/gone.py": (b"gone\n", 0o600),
    "pkg/__pycache__/a.cpython-311.pyc": (b"bytecode", 0o644),
    "kept.txt": (b"kept\n", 0o444),
}
PLAN = Plan(
    "apply",
    (
        PlannedFile("pkg/a.py", FileState(b"a = 1\n"), FileState(b"a = 2\n")),
        PlannedFile(
            "pkg/b.py",
            FileState(b"b = 1\n", EXECUTABLE),
            FileState(b"b = 1\n", REGULAR),
        ),
        PlannedFile("old/gone.py", FileState(b"gone\n"), None),
        PlannedFile("new/deep/c.py", None, FileState(b"c = 1\n", EXECUTABLE)),
    ),
)
STALE = ("pkg/__pycache__/a.cpython-311.pyc",)
NOBODY = 65534


def make_tree(root: Path) -> Path:
    for path, (data, mode) in BEFORE.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)
    (root / "old").chmod(0o775)
    if os.geteuid() == 0:
        os.chown(root / "pkg/a.py", NOBODY, NOBODY)
        os.chown(root / "old/gone.py", NOBODY, NOBODY)
    return root


def write_all(root: Path) -> None:
    """Everything a write can be: change, mode, removal, new folders, old bytecode."""
    commit_to_tree(PLAN, root, stale=STALE)


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Every path with its kind, bytes, permission bits and owner."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        found[path.relative_to(root).as_posix()] = (
            oct(info.st_mode),
            info.st_uid,
            info.st_gid,
            data,
        )
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


@pytest.fixture(scope="module")
def after(tmp_path_factory) -> dict[str, tuple[object, ...]]:
    root = make_tree(tmp_path_factory.mktemp("after") / "tree")
    write_all(root)
    return snapshot(root)


def test_writes_the_plan_and_keeps_modes_and_owners(tree: Path) -> None:
    owner = (tree / "pkg/a.py").stat()
    result = commit_to_tree(PLAN, tree, stale=STALE)
    assert result.written == ("pkg/a.py", "pkg/b.py", "new/deep/c.py")
    assert result.removed == ("old/gone.py", *STALE)
    seen = snapshot(tree)
    assert seen["pkg/a.py"] == ("0o100640", owner.st_uid, owner.st_gid, b"a = 2\n")
    assert seen["pkg/b.py"][0] == "0o100644"
    assert seen["new/deep/c.py"][0] == "0o100755"
    assert seen["kept.txt"][3] == b"kept\n"
    assert sorted(path for path in seen if not path.startswith(journal.FOLDER)) == [
        *("kept.txt", "new", "new/deep", "new/deep/c.py", "pkg", "pkg/a.py", "pkg/b.py")
    ]


def test_umask_has_no_say(tree: Path) -> None:
    before = os.umask(0o077)
    try:
        commit_to_tree(PLAN, tree)
    finally:
        os.umask(before)
    assert snapshot(tree)["new/deep/c.py"][0] == "0o100755"


def test_hard_links_elsewhere_keep_the_old_bytes(tree: Path, tmp_path: Path) -> None:
    """Package managers link installed files to a cache that others use."""
    os.link(tree / "pkg/a.py", tmp_path / "cache.py")
    commit_to_tree(PLAN, tree)
    assert (tmp_path / "cache.py").read_bytes() == b"a = 1\n"


def test_extended_attributes_stay(tree: Path, need) -> None:
    try:
        os.setxattr(tree / "pkg/a.py", "user.note", b"mine")
    except OSError as error:
        need(error.errno != errno.ENOTSUP, "no extended attributes on this file system")
        raise
    commit_to_tree(PLAN, tree)
    assert os.getxattr(tree / "pkg/a.py", "user.note") == b"mine"


def test_a_file_changed_meanwhile_is_refused(tree: Path) -> None:
    (tree / "pkg/b.py").write_bytes(b"other\n")
    before = snapshot(tree)
    with pytest.raises(Refused, match="changed while the patches were checked"):
        commit_to_tree(PLAN, tree)
    assert snapshot(tree) == before


def test_a_link_on_the_way_is_never_followed(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tree / "new").symlink_to(outside)
    before = snapshot(tree)
    with pytest.raises(Refused):
        commit_to_tree(PLAN, tree)
    assert snapshot(tree) == before
    assert not list(outside.iterdir())


def test_two_runs_at_once(tree: Path) -> None:
    before = snapshot(tree)
    with (
        folder_handles.root_handle(tree) as handle,
        journal.locked_folder(handle, tree),
        pytest.raises(EnvironmentProblem, match="another run"),
    ):
        commit_to_tree(PLAN, tree)
    assert snapshot(tree) == before


def test_who_is_turned_away_leaves_the_lock(tree: Path) -> None:
    """The holder's lock outlives a run that it refused, so that a third one sees it."""
    with (
        folder_handles.root_handle(tree) as handle,
        journal.locked_folder(handle, tree),
    ):
        for _ in range(2):
            with pytest.raises(EnvironmentProblem, match="another run"):
                commit_to_tree(PLAN, tree)
            assert (tree / journal.FOLDER / journal.LOCK).exists()
    assert not (tree / journal.FOLDER).exists()


def test_works_outside_the_main_thread(tree: Path, after) -> None:
    thread = threading.Thread(target=write_all, args=(tree,))
    thread.start()
    thread.join()
    assert snapshot(tree) == after


def test_an_acl_does_not_swallow_a_mode(tree: Path, need) -> None:
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *entry)
        for entry in (
            (0x01, 6, 0xFFFFFFFF),
            (0x02, 4, NOBODY),
            (0x04, 4, 0xFFFFFFFF),
            (0x10, 4, 0xFFFFFFFF),
            (0x20, 0, 0xFFFFFFFF),
        )
    )
    file = tree / "pkg/a.py"
    try:
        os.setxattr(file, "system.posix_acl_access", acl)
    except OSError:
        need(False, "no ACLs on this file system")
    after = FileState(b"a = 2\n", EXECUTABLE)
    plan = Plan("apply", (PlannedFile("pkg/a.py", FileState(b"a = 1\n"), after),))
    commit_to_tree(plan, tree)
    assert file.stat().st_mode & 0o777 == 0o750
    named = struct.pack("<HHI", 0x02, 4, NOBODY)
    assert named in os.getxattr(file, "system.posix_acl_access")


def test_set_user_id_stays(tree: Path) -> None:
    (tree / "pkg/a.py").chmod(0o4640)
    commit_to_tree(PLAN, tree)
    assert (tree / "pkg/a.py").stat().st_mode & 0o7777 == 0o4640


def test_a_new_folder_below_a_sticky_one_is_not_open_to_all(tree: Path) -> None:
    tree.chmod(0o1777)
    commit_to_tree(PLAN, tree)
    assert (tree / "new").stat().st_mode & 0o7777 == 0o755
