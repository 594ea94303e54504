"""A tree is read without ever following a link below its root."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.errors import EnvironmentProblem, UsageError
from patchkit.file_state import (
    EXECUTABLE,
    REGULAR,
    FileState,
    MemorySource,
    Source,
    UnsafePath,
)
from patchkit.tree_source import TreeSource


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "m.py").write_bytes(b"x\r\n")
    (root / "run.sh").write_bytes(b"")
    (root / "run.sh").chmod(0o755)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "m.py").write_bytes(b"secret\n")
    return root


def test_bytes_and_modes(tree: Path) -> None:
    source = TreeSource(tree)
    assert source.read("pkg/m.py") == FileState(b"x\r\n", REGULAR)
    assert source.read("run.sh") == FileState(b"", EXECUTABLE)
    assert source.label == str(tree)


@pytest.mark.parametrize("path", ["pkg/none.py", "none/m.py", "none"])
def test_absent(tree: Path, path: str) -> None:
    assert TreeSource(tree).read(path) is None


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o655, 0o755, 0o700])
def test_the_owners_bit_alone_counts(tree: Path, mode: int) -> None:
    (tree / "run.sh").chmod(mode)
    state = TreeSource(tree).read("run.sh")
    assert state is not None
    assert state.mode == (EXECUTABLE if mode & 0o100 else REGULAR)


def test_the_root_may_be_a_link(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree)
    assert TreeSource(tmp_path / "link").read("pkg/m.py") is not None


def test_folder_that_is_a_link(tree: Path) -> None:
    (tree / "away").symlink_to("../outside")
    with pytest.raises(UnsafePath) as caught:
        TreeSource(tree).read("away/m.py")
    assert (caught.value.component, caught.value.reason) == ("away", "symlink")
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("target", ["pkg/m.py", "../outside/m.py", "nowhere", "pkg"])
def test_file_that_is_a_link(tree: Path, target: str) -> None:
    (tree / "m.py").symlink_to(target)
    with pytest.raises(UnsafePath, match="symbolic link") as caught:
        TreeSource(tree).read("m.py")
    assert caught.value.reason == "symlink"


def test_what_is_no_file(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    for path in ("pkg", "pipe"):
        with pytest.raises(UnsafePath) as caught:
            TreeSource(tree).read(path)
        assert caught.value.reason == "not-regular"
    with pytest.raises(UnsafePath) as caught:
        TreeSource(tree).read("run.sh/inner")
    assert (caught.value.component, caught.value.reason) == ("run.sh", "parent-is-file")


def _memory(tree: Path) -> Source:
    del tree
    return MemorySource({"pkg/m.py": FileState(b"x\r\n"), "run.sh": FileState(b"")})


@pytest.mark.parametrize("make", [TreeSource, _memory])
@pytest.mark.parametrize("path", ["../outside/m.py", "/etc/passwd", "a//b", "", "a\0b"])
def test_no_way_out(tree: Path, make: Callable[[Path], Source], path: str) -> None:
    with pytest.raises(UnsafePath) as caught:
        make(tree).read(path)
    assert caught.value.reason == "escapes"


def test_memory_refuses_as_a_tree_does(tree: Path) -> None:
    source = _memory(tree)
    assert source.read("pkg/m.py") == FileState(b"x\r\n")
    for path, reason in (("pkg", "not-regular"), ("run.sh/x", "parent-is-file")):
        with pytest.raises(UnsafePath) as caught:
            source.read(path)
        assert caught.value.reason == reason


def test_no_such_root(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        TreeSource(tmp_path / "none")


def test_permission(tree: Path, need: Callable[[bool, str], None]) -> None:
    need(os.geteuid() != 0 or hasattr(os, "seteuid"), "a user without root's rights")
    (tree / "pkg" / "m.py").chmod(0)
    for folder in (tree, *tree.parents[:3]):
        folder.chmod(0o755)
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            with pytest.raises(EnvironmentProblem, match=r"m\.py"):
                TreeSource(tree).read("pkg/m.py")
        finally:
            os.seteuid(0)
    else:
        with pytest.raises(EnvironmentProblem, match=r"m\.py"):
            TreeSource(tree).read("pkg/m.py")


def test_find_name(tree: Path) -> None:
    (tree / "other").mkdir()
    (tree / "other" / "m.py").write_bytes(b"")
    found = TreeSource(tree).find_name("m.py", "pkg/gone/m.py")
    assert found == ["pkg/m.py", "other/m.py"]
