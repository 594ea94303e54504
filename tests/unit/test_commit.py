"""Writing to a tree is all or nothing: at every step, for every kind of failure."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchkit import commit, journal
from patchkit.commit import commit_to_tree
from patchkit.errors import EnvironmentProblem, KitError, Refused
from patchkit.file_state import EXECUTABLE, REGULAR, FileState
from patchkit.journal import recover
from patchkit.plan_types import Plan, PlannedFile

TOOLS = Path(__file__).parents[2] / "tools"
BEFORE = {
    "pkg/a.py": (b"a = 1\n", 0o640),
    "pkg/b.py": (b"b = 1\n", 0o755),
    "gone.py": (b"gone\n", 0o600),
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
        PlannedFile("gone.py", FileState(b"gone\n"), None),
        PlannedFile("new/deep/c.py", None, FileState(b"c = 1\n", EXECUTABLE)),
    ),
)
NOBODY = 65534


def make_tree(root: Path) -> Path:
    for path, (data, mode) in BEFORE.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)
    if os.geteuid() == 0:
        os.chown(root / "pkg/a.py", NOBODY, NOBODY)
    return root


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
    commit_to_tree(PLAN, root)
    return snapshot(root)


def test_writes_the_plan_and_keeps_modes_and_owners(tree: Path) -> None:
    owner = (tree / "pkg/a.py").stat()
    result = commit_to_tree(PLAN, tree)
    assert result.written == ("pkg/a.py", "pkg/b.py", "new/deep/c.py")
    assert result.removed == ("gone.py",)
    seen = snapshot(tree)
    assert seen["pkg/a.py"] == ("0o100640", owner.st_uid, owner.st_gid, b"a = 2\n")
    assert seen["pkg/b.py"][0] == "0o100644"
    assert seen["new/deep/c.py"][0] == "0o100755"
    assert seen["kept.txt"][3] == b"kept\n"
    assert sorted(seen) == [
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
        journal.root_handle(tree) as handle,
        journal.locked_folder(handle, tree),
        pytest.raises(EnvironmentProblem, match="another run"),
    ):
        commit_to_tree(PLAN, tree)
    assert snapshot(tree) == before


# Every function through which the commit changes a file system.
CALLS = (
    "link",
    "rename",
    "unlink",
    "mkdir",
    "fchmod",
    "chmod",
    "fchown",
    "fsync",
    "open",
)

DRIVER = """
    import os, signal, sys
    sys.path[:0] = [{tools!r}, {tests!r}]
    import test_commit
    from pathlib import Path

    limit = int(sys.argv[2])
    count = 0

    def counted(real):
        def call(*args, **kwargs):
            global count
            count += 1
            if count == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)
        return call

    supports = {{name: getattr(os, name) for name in test_commit.CALLS}}
    for name, real in supports.items():
        setattr(os, name, counted(real))
    from patchkit.commit import commit_to_tree
    commit_to_tree(test_commit.PLAN, Path(sys.argv[1]))
    print(count)
"""


def run_driver(root: Path, limit: int) -> subprocess.CompletedProcess[str]:
    source = textwrap.dedent(DRIVER).format(
        tools=str(TOOLS), tests=str(Path(__file__).parent)
    )
    return subprocess.run(
        [sys.executable, "-c", source, str(root), str(limit)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_killed_at_every_step(tmp_path: Path, after) -> None:
    """SIGKILL before each call that touches the disk; the next run mends it."""
    root = make_tree(tmp_path / "count")
    before = snapshot(root)
    steps = int(run_driver(root, 0).stdout)
    assert steps > 40
    recover(root)
    assert snapshot(root) == after
    undone = 0
    # Each run is a process of its own: every third step, and all around the end.
    for limit in {*range(1, steps, 3), *range(steps - 8, steps + 1)}:
        root = make_tree(tmp_path / f"kill-{limit}")
        assert run_driver(root, limit).returncode == -9, limit
        recover(root)
        left = snapshot(root)
        assert left in (before, after), f"killed at step {limit} of {steps}"
        undone += left == before
    assert undone > 10


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
                commit_to_tree(PLAN, root)
            except KitError:
                pass
            else:
                break
        # An undo that failed halfway leaves its journal, and the next run ends it.
        recover(root)
        assert snapshot(root) == before, f"{name} call {when}"
    recover(root)
    assert snapshot(root) == after


def test_interrupts_undo(tree: Path, monkeypatch) -> None:
    before = snapshot(tree)

    def interrupt(root, step):
        if step.path == "new/deep/c.py":
            raise KeyboardInterrupt
        real(root, step)

    real = commit._carry_out
    monkeypatch.setattr(commit, "_carry_out", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit_to_tree(PLAN, tree)
    assert snapshot(tree) == before


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


def test_leftovers_without_a_journal_are_no_matter(tree: Path) -> None:
    before = snapshot(tree)
    folder = tree / journal.FOLDER
    folder.mkdir()
    (folder / "original-0").write_bytes(b"x")
    assert recover(tree) is None
    assert snapshot(tree) == before


def test_recovery_waits_for_no_one(tree: Path) -> None:
    """A journal whose writer still holds the lock is that run's, not ours."""
    with journal.root_handle(tree) as root, journal.locked_folder(root, tree) as folder:
        journal.write_journal(folder, journal.Journal([]))
        with pytest.raises(EnvironmentProblem, match="another run"):
            recover(tree)
        journal.close_journal(folder)
    assert not (tree / journal.FOLDER).exists()


def test_a_broken_journal_is_not_guessed_at(tree: Path) -> None:
    folder = tree / journal.FOLDER
    folder.mkdir()
    (folder / journal.JOURNAL).write_text(json.dumps({"steps": 3}))
    with pytest.raises(journal.OwnBug, match="cannot be read"):
        recover(tree)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    before=st.dictionaries(
        st.sampled_from(["a", "d/b", "d/e/c", "f"]), st.binary(max_size=9), max_size=4
    ),
    after=st.dictionaries(
        st.sampled_from(["a", "d/b", "d/e/c", "f"]), st.binary(max_size=9), max_size=4
    ),
)
def test_any_change_there_and_back(tmp_path_factory, before, after) -> None:
    root = tmp_path_factory.mktemp("t")
    for path, data in before.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)

    def state(files, path):
        return FileState(files[path]) if path in files else None

    def move(old, new):
        paths = sorted({*old, *new})
        files = [
            PlannedFile(path, state(old, path), state(new, path)) for path in paths
        ]
        commit_to_tree(Plan("apply", tuple(files)), root)

    def files():
        return {p: v[3] for p, v in snapshot(root).items() if v[0].startswith("0o10")}

    move(before, after)
    assert files() == after
    move(after, before)
    assert files() == before
