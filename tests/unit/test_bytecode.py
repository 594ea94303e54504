"""Which cached bytecode would keep running the old code; Python is the judge."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode as Mode

import pytest

from patchkit.bytecode import as_checked, is_unchecked, stale_bytecode
from patchkit.commit import commit_to_tree
from patchkit.file_state import EXECUTABLE, FileState
from patchkit.plan_types import Plan, PlannedFile

OLD, NEW = b"V = 'old'\n", b"V = 'new'\n"  # of one size


def imported(root: Path, *flags: str) -> str:
    """What Python makes of ``m`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", "import m; print(m.V)"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def change(root: Path, before: bytes | None, after: bytes | None) -> tuple[str, ...]:
    file = PlannedFile(
        "m.py",
        None if before is None else FileState(before),
        None if after is None else FileState(after),
    )
    stale = stale_bytecode([file], root)
    commit_to_tree(Plan("apply", (file,)), root, stale=stale)
    return stale


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_bytes(OLD)
    return tmp_path


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("mode", list(Mode))
def test_the_new_code_runs(root: Path, mode: Mode, level: int) -> None:
    py_compile.compile(
        str(root / "m.py"), optimize=level, invalidation_mode=mode, doraise=True
    )
    flags = ["-" + "O" * level] if level else []
    assert imported(root, *flags) == "old"
    stale = change(root, OLD, NEW)
    assert imported(root, *flags) == "new"
    # A checked hash is safe, and stays.
    assert bool(stale) == (mode is not Mode.CHECKED_HASH)


def test_a_time_stamp_of_another_day_is_safe(root: Path) -> None:
    os.utime(root / "m.py", (1e9, 1e9))
    py_compile.compile(str(root / "m.py"), invalidation_mode=Mode.TIMESTAMP)
    assert change(root, OLD, NEW) == ()
    assert imported(root) == "new"


def test_bytecode_beside_the_source(root: Path) -> None:
    """The legacy place: read only where the source is gone."""
    py_compile.compile(str(root / "m.py"), cfile=str(root / "m.pyc"))
    assert change(root, OLD, None) == ("m.pyc",)
    assert "No module named" in imported(root)


def test_bytecode_that_an_earlier_module_left(root: Path) -> None:
    """A created file of the same name would never be read."""
    py_compile.compile(str(root / "m.py"), invalidation_mode=Mode.UNCHECKED_HASH)
    (root / "m.py").unlink()
    assert len(change(root, None, NEW)) == 1
    assert imported(root) == "new"


def test_a_mode_alone_leaves_it(root: Path) -> None:
    py_compile.compile(str(root / "m.py"), invalidation_mode=Mode.UNCHECKED_HASH)
    file = PlannedFile("m.py", FileState(OLD), FileState(OLD, EXECUTABLE))
    assert stale_bytecode([file], root) == ()


def test_neighbours_and_links_are_left(root: Path, tmp_path_factory) -> None:
    (root / "mm.py").write_bytes(OLD)
    py_compile.compile(str(root / "mm.py"), invalidation_mode=Mode.UNCHECKED_HASH)
    outside = tmp_path_factory.mktemp("outside") / "x.pyc"
    outside.write_bytes(b"theirs")
    (root / "__pycache__/m.cpython-311.pyc").symlink_to(outside)
    assert change(root, OLD, NEW) == ()
    assert outside.exists()


@pytest.mark.parametrize("data", [b"", b"short", b"\0" * 15])
def test_broken_bytecode_goes(root: Path, data: bytes) -> None:
    (root / "__pycache__").mkdir()
    (root / "__pycache__/m.cpython-311.pyc").write_bytes(data)
    assert change(root, OLD, NEW) == ("__pycache__/m.cpython-311.pyc",)


def test_as_checked_is_what_python_calls_checked(root: Path) -> None:
    made = py_compile.compile(
        str(root / "m.py"), invalidation_mode=Mode.UNCHECKED_HASH, doraise=True
    )
    assert made is not None
    cached = Path(made)
    assert is_unchecked(cached.read_bytes())
    cached.write_bytes(as_checked(cached.read_bytes()))
    assert not is_unchecked(cached.read_bytes())
    (root / "m.py").write_bytes(NEW)
    assert imported(root) == "new"
