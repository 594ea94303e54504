"""A write that fails, in every way and at every call, leaves the tree as it was."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from kill_points import CALLS
from test_commit import NOBODY, PLAN, make_tree, snapshot, write_all

from patchkit import commit, commit_steps, folder_handles, journal
from patchkit.commit import commit_to_tree
from patchkit.errors import EnvironmentProblem, KitError, Refused
from patchkit.file_state import FileState
from patchkit.plan_types import Plan, PlannedFile
from patchkit.recovery import recover


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


@pytest.fixture(scope="module")
def after(tmp_path_factory) -> dict[str, tuple[object, ...]]:
    root = make_tree(tmp_path_factory.mktemp("after") / "tree")
    write_all(root)
    return snapshot(root)


def fail_at(monkeypatch, name: str, when: int, error: int) -> None:
    """Let the ``when``-th call of an ``os`` function fail, and no other."""
    real = getattr(os, name)
    count = 0

    def call(*args, **kwargs):
        nonlocal count
        count += 1
        if count == when:
            raise OSError(error, os.strerror(error))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES])
def test_every_call_may_fail(tmp_path, monkeypatch, after, name, error) -> None:
    """A full disk, or no permission, at any call: all as before, or all done."""
    root = make_tree(tmp_path / "tree")
    before = snapshot(root)
    for when in range(1, 200):
        with monkeypatch.context() as patched:
            fail_at(patched, name, when, error)
            try:
                write_all(root)
            except KitError:
                pass
            else:
                break
        # An undo that failed halfway leaves its journal, and the next run ends it.
        recover(root)
        assert snapshot(root) == before, f"{name} call {when}"
    recover(root)
    left = snapshot(root)
    # Folders that a write leaves empty are no part of the promise: one may stay.
    assert {path: left[path] for path in after} == after
    assert left.keys() - after.keys() <= {"old", "pkg/__pycache__"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupts_undo(tree: Path, monkeypatch, number) -> None:
    before = snapshot(tree)
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    def interrupt(root, folder, step):
        if step.path == "new/deep/c.py":
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)  # impatience does not stop the undo
        real(root, folder, step)

    real = commit.carry_out
    monkeypatch.setattr(commit, "carry_out", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit_to_tree(PLAN, tree)
    assert snapshot(tree) == before
    assert handlers == [
        signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)
    ]


def test_a_signal_once_all_is_written_changes_nothing(
    tree: Path, monkeypatch, after
) -> None:
    real = commit.close_journal

    def close(folder, *, done):
        real(folder, done=done)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(commit, "close_journal", close)
    write_all(tree)
    assert snapshot(tree) == after


def test_a_full_disk(need, tmp_path: Path) -> None:
    """A real one: a file system of 64 pages."""
    need(os.geteuid() == 0, "mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=True
    )
    try:
        root = make_tree(disk / "tree")
        big = FileState(b"x = 1\n" * 60_000)
        plan = Plan(
            "apply",
            (
                PlannedFile("pkg/a.py", FileState(b"a = 1\n"), FileState(b"a = 2\n")),
                PlannedFile("big.py", None, big),
            ),
        )
        before = snapshot(root)
        with pytest.raises(EnvironmentProblem, match="the disk is full"):
            commit_to_tree(plan, root)
        assert snapshot(root) == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_as_another_user(need, tmp_path: Path) -> None:
    """A folder that may not be written, met by a user who is not root."""
    need(os.geteuid() == 0, "becoming another user needs root")
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:2]:
        parent.chmod(0o755)
    root = make_tree(tmp_path / "tree")
    for path in [root, *root.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    os.chown(root / "pkg", 0, 0)
    before = snapshot(root)
    pid = os.fork()
    if pid == 0:
        # The interpreter's own folder may be closed to that user, so no exec.
        code = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            try:
                commit_to_tree(PLAN, root)
            except Refused as refused:
                code = 0 if "may not be written" in str(refused) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert snapshot(root) == before


def as_nobody(action) -> None:
    """Run ``action`` as a user who is not root; the interpreter's own folder may be
    closed to that user, so no exec."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            action()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_files_of_others_keep_their_owner(need, tmp_path: Path) -> None:
    """A writable folder with root's files: a refusal must not take them over."""
    need(os.geteuid() == 0, "becoming another user needs root")
    for parent in (tmp_path, *list(tmp_path.parents)[:2]):
        parent.chmod(0o755)
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a.py").write_bytes(b"a = 1\n")
    os.chown(root, NOBODY, NOBODY)
    before = snapshot(root)

    for after in (FileState(b"a = 2\n"), None):
        plan = Plan("apply", (PlannedFile("a.py", FileState(b"a = 1\n"), after),))

        def action(plan=plan) -> None:
            with pytest.raises(Refused, match=r"a\.py: may not be written"):
                commit_to_tree(plan, root)

        as_nobody(action)
        assert snapshot(root) == before


def test_an_immutable_file_stops_all_and_no_later_run(tree: Path, need) -> None:
    done = subprocess.run(
        ["chattr", "+i", str(tree / "pkg/b.py")], capture_output=True, check=False
    )
    need(done.returncode == 0, "chattr needs root and a file system that has flags")
    before = snapshot(tree)
    inode = (tree / "pkg/b.py").stat().st_ino
    try:
        with pytest.raises(Refused, match=r"pkg/b\.py: may not be written"):
            commit_to_tree(PLAN, tree)
        assert snapshot(tree) == before
        assert (tree / "pkg/b.py").stat().st_ino == inode
        assert recover(tree) is None
    finally:
        subprocess.run(["chattr", "-i", str(tree / "pkg/b.py")], check=True)


def test_an_undo_that_fails_is_told(tree: Path, monkeypatch) -> None:
    """Never "nothing was changed" of a tree that is half written."""
    before = snapshot(tree)
    real, count = os.rename, 0

    def rename(*args, **kwargs):
        nonlocal count
        count += 1
        if count >= 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(EnvironmentProblem, match="not undone yet") as caught:
            commit_to_tree(PLAN, tree)
    assert "nothing was changed" not in str(caught.value)
    assert snapshot(tree) != before
    with pytest.raises(EnvironmentProblem, match="broken off here"):
        commit_to_tree(PLAN, tree)
    assert recover(tree) is not None
    assert snapshot(tree) == before


def test_a_signal_does_not_stop_an_undo(tree: Path, monkeypatch) -> None:
    """A full disk first, then Ctrl-C while the tree is put back."""
    before = snapshot(tree)

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def put_back(*args):
        os.kill(os.getpid(), signal.SIGINT)
        return real(*args)

    real = commit.put_back
    monkeypatch.setattr(commit, "sync_folder", full)
    monkeypatch.setattr(commit, "put_back", put_back)
    with pytest.raises(EnvironmentProblem, match="the disk is full"):
        commit_to_tree(PLAN, tree)
    assert snapshot(tree) == before


def test_file_systems_that_cannot_sync_folders(tree: Path, monkeypatch, after) -> None:
    """Some network file systems know no fsync of a folder."""
    real = os.fsync

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(handle)

    monkeypatch.setattr(folder_handles.os, "fsync", fsync)
    write_all(tree)
    assert snapshot(tree) == after


def test_too_small_a_disk_is_seen_before_anything_is_written(
    tree: Path, monkeypatch
) -> None:
    before = snapshot(tree)
    real = os.fstatvfs

    def full(handle):
        values = list(real(handle))
        values[3] = values[4] = 0  # f_bfree, f_bavail
        return os.statvfs_result(values)

    monkeypatch.setattr(commit_steps.os, "fstatvfs", full)
    monkeypatch.setattr(commit, "stage", None)
    with pytest.raises(EnvironmentProblem, match="the disk is full"):
        commit_to_tree(PLAN, tree)
    assert snapshot(tree) == before


def test_the_kits_own_folder_is_out_of_reach(tree: Path) -> None:
    plan = Plan(
        "apply",
        (PlannedFile(".vllm-patchkit/journal.json", None, FileState(b"{}")),),
    )
    with pytest.raises(Refused, match="own folder"):
        commit_to_tree(plan, tree)


@pytest.mark.parametrize("name", ["pkg", "new"])
def test_a_folder_swapped_for_a_link_redirects_nothing(
    tree: Path, tmp_path: Path, monkeypatch, name: str
) -> None:
    """Swapped after the last look, before the write: by another process."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_bytes(b"theirs\n")
    real = commit.prepare

    def swap(*args):
        steps = real(*args)
        if (tree / name).exists():
            (tree / name).rename(tmp_path / "aside")
        (tree / name).symlink_to(outside)
        return steps

    monkeypatch.setattr(commit, "prepare", swap)
    with pytest.raises(KitError):
        commit_to_tree(PLAN, tree)
    assert [path.name for path in outside.iterdir()] == ["a.py"]
    assert (outside / "a.py").read_bytes() == b"theirs\n"
    (tree / name).unlink()
    if (tmp_path / "aside").exists():
        (tmp_path / "aside").rename(tree / name)
    recover(tree)
    assert (tree / "pkg/a.py").read_bytes() == b"a = 1\n"


def test_what_is_not_ours_in_the_kits_folder_is_told(tree: Path) -> None:
    (tree / journal.FOLDER / "original-0").mkdir(parents=True)
    with pytest.raises(EnvironmentProblem, match="original-0 is none of ours"):
        commit_to_tree(PLAN, tree)
    assert (tree / "pkg/a.py").read_bytes() == b"a = 1\n"
