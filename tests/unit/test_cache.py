"""The per-user cache: where it is, whole files or none, problems in one line."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from small_disk import Need, read_only, small_disk

from patchkit.cache import cache_folder, disk_problems, whole_file
from patchkit.errors import EnvironmentProblem


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_folder_follows_xdg(home: Path) -> None:
    assert cache_folder("a", "b") == home / "vllm-patchkit" / "a" / "b"
    assert cache_folder("a", "b").is_dir()


def test_folder_without_xdg_is_below_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "vllm-patchkit"


def test_a_file_in_the_way(home: Path) -> None:
    home.write_text("no folder")
    with pytest.raises(EnvironmentProblem, match="cannot write") as caught:
        cache_folder("sdists")
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "f"
    for text in ("one", "two"):
        with whole_file(target) as partial:
            partial.write_text(text)
            assert not target.exists() or target.read_text() == "one"
        assert target.read_text() == text
    assert target.stat().st_mode & 0o777 == 0o644
    assert names(tmp_path) == ["f"]


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_text("one")
    with target.open() as reader:
        with whole_file(target) as partial:
            partial.write_text("three")
            number = partial.stat().st_ino
        assert reader.read() == "one"
    assert target.stat().st_ino == number


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError(), SystemExit(1)])
def test_nothing_half_is_left(error: BaseException, tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_text("before")
    with pytest.raises(type(error)), whole_file(target) as partial:
        partial.write_text("half")
        raise error
    assert names(tmp_path) == ["f"]
    assert target.read_text() == "before"


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in (".f.old", ".f.new", ".g.old"))
    for file in (old, young, other):
        file.touch()
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    os.utime(other, (yesterday, yesterday))
    with whole_file(tmp_path / "f"):
        pass
    assert names(tmp_path) == [".f.new", ".g.old", "f"]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full: .*/f could not be written"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "cannot write .*/f: Permission denied"),
        (errno.EROFS, "cannot write .*/f: Read-only file system"),
        (errno.EIO, "cannot write .*/f: Input/output error"),
        (errno.ENAMETOOLONG, "cannot write .*/f: File name too long"),
    ],
)
def test_disk_problems(number: int, said: str, home: Path) -> None:
    with (
        pytest.raises(EnvironmentProblem, match=said) as caught,
        disk_problems(home / "vllm-patchkit" / "f"),
    ):
        raise OSError(number, "whatever")
    assert "XDG_CACHE_HOME" in caught.value.hint
    assert caught.value.exit_code == 2


def test_hint_only_where_it_helps(home: Path, tmp_path: Path) -> None:
    assert home
    with (
        pytest.raises(EnvironmentProblem) as caught,
        disk_problems(tmp_path / "elsewhere"),
    ):
        raise OSError(errno.ENOSPC, "")
    assert "XDG_CACHE_HOME" not in caught.value.hint


def test_read_only_folder(home: Path, need: Need) -> None:
    assert home
    folder = cache_folder("sdists")
    with (
        read_only(folder, need),
        pytest.raises(EnvironmentProblem, match="cannot write") as caught,
        whole_file(folder / "f"),
    ):
        pass
    assert "XDG_CACHE_HOME" in caught.value.hint
    assert list(folder.iterdir()) == []


def test_full_disk(tmp_path: Path, need: Need) -> None:
    with small_disk(tmp_path / "disk", 64, need) as disk:
        with (
            pytest.raises(EnvironmentProblem, match="the disk is full"),
            whole_file(disk / "f") as partial,
        ):
            partial.write_bytes(b"x" * 100_000)
        assert list(disk.iterdir()) == []
