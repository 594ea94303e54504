"""A write that is killed anywhere is undone or finished by the next run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kill_points import run_until
from small_disk import small_disk
from test_commit import PLAN, make_tree, snapshot, write_all

from patchkit import commit, journal
from patchkit.attributes import PATH as ATTRIBUTES
from patchkit.commit import commit_to_tree
from patchkit.errors import EnvironmentProblem
from patchkit.file_state import EXECUTABLE, REGULAR, FileState
from patchkit.folder_handles import root_handle
from patchkit.plan_types import Plan, PlannedFile
from patchkit.recovery import recover


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def fresh(root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    return make_tree(root)


def revert_all(root: Path) -> None:
    back = tuple(PlannedFile(f.path, f.after, f.before) for f in PLAN.files)
    commit_to_tree(Plan("apply", back), root, remember=False)


@pytest.mark.parametrize("action", [write_all, revert_all])
def test_killed_at_every_step(tmp_path: Path, action) -> None:
    """SIGKILL before each call that touches the disk, of a write and of a revert."""
    root = tmp_path / "tree"

    def start() -> None:
        fresh(root)
        if action is revert_all:
            write_all(root)

    start()
    before = snapshot(root)
    killed, steps = run_until(0, lambda: action(root))
    assert not killed
    assert steps > 60
    after = snapshot(root)
    ends = []
    for limit in range(1, steps + 1):
        start()
        assert run_until(limit, lambda: action(root))[0]
        recover(root)
        left = snapshot(root)
        assert left in (before, after), f"killed at step {limit} of {steps}"
        assert recover(root) is None
        ends.append(left == after)
    # There is one moment at which it counts: before it nothing, after it everything.
    assert ends == sorted(ends)
    assert {True, False} == set(ends)


def test_killed_while_undoing(tmp_path: Path) -> None:
    """A recovery that is killed at every step of its own, and then begun again."""
    root, ruins = tmp_path / "tree", tmp_path / "ruins"
    before = snapshot(fresh(root))
    _, steps = run_until(0, lambda: write_all(root))
    after = snapshot(root)
    for limit in range(5, steps, 11):
        fresh(ruins)
        run_until(limit, lambda: write_all(ruins))
        wanted = after if (ruins / journal.FOLDER / journal.DONE).exists() else before
        calls = 1
        while True:
            shutil.rmtree(root)
            # Hard links between the journal and the tree have to be copied as such.
            subprocess.run(["cp", "-a", str(ruins), str(root)], check=True)
            killed, _ = run_until(calls, lambda: recover(root))
            recover(root)
            assert snapshot(root) == wanted, f"killed at {limit}, undo at {calls}"
            if not killed:
                break
            calls += 1


def clear(root: Path) -> None:
    """Remove what lies below ``root``, and leave mount points standing."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not path.is_mount():
                path.rmdir()
        else:
            path.unlink()


def test_killed_with_a_mount_inside_the_tree(tmp_path: Path, need) -> None:
    """Nothing can be linked or moved between the two: copies, at every step whole."""
    root = tmp_path / "tree"
    with (
        small_disk(root / "pkg", 256, need),
        small_disk(root / "pkg/__pycache__", 256, need),
    ):

        def start() -> None:
            clear(root)
            make_tree(root)
            (root / "pkg/a.py.part").write_bytes(b"theirs, whatever it is called")

        start()
        before = snapshot(root)
        killed, steps = run_until(0, lambda: write_all(root))
        assert not killed
        after = snapshot(root)
        assert after["pkg/a.py"][3] == b"a = 2\n"
        undone = 0
        for limit in range(1, steps + 1):
            start()
            run_until(limit, lambda: write_all(root))
            # The recovery is killed in its turn, once.
            run_until(1 + limit % 23, lambda: recover(root))
            recover(root)
            left = snapshot(root)
            assert left in (before, after), f"killed at step {limit} of {steps}"
            undone += left == before
        assert undone > 60
        clear(root)


FILES = ["a", "d/b", "d/e/c", "f"]
STATES = st.dictionaries(
    st.sampled_from(FILES),
    st.builds(FileState, st.binary(max_size=9), st.sampled_from([REGULAR, EXECUTABLE])),
    max_size=4,
)
MODES = st.sampled_from([0o600, 0o640, 0o644, 0o664])


def move_plan(old: dict[str, FileState], new: dict[str, FileState]) -> Plan:
    paths = sorted({*old, *new})
    return Plan("apply", tuple(PlannedFile(p, old.get(p), new.get(p)) for p in paths))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    start=STATES,
    modes=st.lists(MODES, min_size=4, max_size=4),
    ends=st.lists(STATES, min_size=1, max_size=3),
    kills=st.lists(st.integers(0, 140), min_size=6, max_size=6),
)
def test_any_writes_reverts_and_kills(
    tmp_path_factory, start, modes, ends, kills
) -> None:
    """Whatever comes in between: a tree is as before or as after each step, and all
    reverts together give back every byte, mode and owner."""
    root = tmp_path_factory.mktemp("t")
    for (path, state), mode in zip(sorted(start.items()), modes, strict=False):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(state.data)
        file.chmod(mode | (mode & 0o444) >> 2 if state.mode == EXECUTABLE else mode)
        if os.geteuid() == 0 and mode == 0o640:
            os.chown(file, 65534, 65534)
    whole = snapshot(root)
    moves = [*zip([start, *ends], ends, strict=False)]
    back = [(new, old) for old, new in reversed(moves)]
    limits = iter(kills)
    for number, (old, new) in enumerate([*moves, *back]):
        remember = number < len(moves)
        before = snapshot(root)

        def action(old=old, new=new, remember=remember) -> None:
            commit_to_tree(move_plan(old, new), root, remember=remember)

        killed, _ = run_until(next(limits), action)
        recover(root)
        if killed and snapshot(root) == before:
            action()
        found = {
            path: said[3]
            for path, said in snapshot(root).items()
            if said[0].startswith("0o10") and path != ATTRIBUTES
        }
        assert found == {path: state.data for path, state in new.items()}
    if len(ends) == 1:
        # Of several writes the last to remove a file knows its attributes.
        assert snapshot(root) == whole


def broken_off(root: Path, monkeypatch, path: str) -> None:
    """Leave the ruins of a write that ended just before ``path`` was put in place, or
    with all in place and nothing said of it."""
    real = commit.carry_out

    def stop(handle, folder, step):
        if step.path == path:
            os._exit(0)
        real(handle, folder, step)

    with monkeypatch.context() as patched:
        patched.setattr(commit, "carry_out", stop)
        patched.setattr(commit, "sync_folder", lambda *_: os._exit(0))
        run_until(0, lambda: write_all(root))


@pytest.mark.parametrize("path", ["pkg/a.py", "pkg/b.py", "new/deep/c.py"])
def test_an_edit_after_a_kill_is_not_overwritten(
    tree: Path, tmp_path: Path, monkeypatch, path: str
) -> None:
    before = snapshot(tree)
    broken_off(tree, monkeypatch, "old/gone.py")
    (tree / path).write_bytes(b"mine\n")
    with pytest.raises(EnvironmentProblem, match=f"{path} was edited") as caught:
        recover(tree)
    assert "move your version away" in caught.value.hint
    assert (tree / path).read_bytes() == b"mine\n"
    (tree / path).rename(tmp_path / "mine")
    assert recover(tree) is not None
    assert snapshot(tree) == before


def test_bytecode_written_after_a_kill_goes(tree: Path, monkeypatch) -> None:
    """Python may have run the half-written tree since: that is no one's work."""
    before = snapshot(tree)
    broken_off(tree, monkeypatch, "")
    cached = tree / "pkg/__pycache__/a.cpython-311.pyc"
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(b"newer")
    recover(tree)
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../victim"},
        {"path": "/etc/victim"},
        {"path": "a/../../victim"},
        {"saved": "../../victim"},
        {"staged": "../victim"},
        {"path": 3},
    ],
)
def test_a_journal_that_came_with_the_tree_leads_nowhere(
    tree: Path, tmp_path: Path, change
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"theirs")
    step = {"path": "new.py", "saved": None, "staged": None, "after": None, **change}
    folder = tree / journal.FOLDER
    folder.mkdir()
    text = json.dumps({"steps": [step], "folders": [], "emptied": []})
    (folder / journal.JOURNAL).write_text(text)
    before = snapshot(tree)
    with pytest.raises(EnvironmentProblem, match="cannot be read") as caught:
        recover(tree)
    assert f"remove {folder}" in caught.value.hint
    assert victim.read_bytes() == b"theirs"
    left = {path: said for path, said in snapshot(tree).items() if "lock" not in path}
    assert {path: said[3] for path, said in left.items()} == {
        path: said[3] for path, said in before.items()
    }


@pytest.mark.parametrize("text", ["", "[]", '{"steps": 3}', "{", "\0"])
def test_a_broken_journal_is_not_guessed_at(tree: Path, text: str) -> None:
    folder = tree / journal.FOLDER
    folder.mkdir()
    (folder / journal.JOURNAL).write_text(text)
    with pytest.raises(EnvironmentProblem, match="cannot be read"):
        recover(tree)


def test_leftovers_without_a_journal_are_no_matter(tree: Path) -> None:
    before = snapshot(tree)
    folder = tree / journal.FOLDER
    folder.mkdir()
    (folder / "original-0").write_bytes(b"x")
    assert recover(tree) is None
    assert snapshot(tree) == before


def test_recovery_waits_for_no_one(tree: Path) -> None:
    """A journal whose writer still holds the lock is that run's, not ours."""
    with root_handle(tree) as root, journal.locked_folder(root, tree) as folder:
        journal.write_journal(root, folder, journal.Journal([]))
        with pytest.raises(EnvironmentProblem, match="another run"):
            recover(tree)
        journal.close_journal(folder, done=False)
    assert not (tree / journal.FOLDER).exists()


def test_many_runs_at_once(tree: Path) -> None:
    """Each has the tree to itself, or says that another has it; nothing is left."""
    before = snapshot(tree)
    write_all(tree)
    after = snapshot(tree)
    revert_all(tree)
    pids = []
    for number in range(12):
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                (write_all if number % 2 else revert_all)(tree)
                code = 0
            except EnvironmentProblem:
                code = 2
            except journal.KitError as error:
                code = error.exit_code
            finally:
                os._exit(code)
        pids.append(pid)
    codes = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
    assert codes <= {0, 1, 2}
    shown = snapshot(tree)
    strip = STALE_FOLDER = "pkg/__pycache__"
    for each in (before, after, shown):
        for path in [path for path in each if path.startswith(strip)]:
            del each[path]
    assert STALE_FOLDER not in shown
    assert shown in (before, after)
