"""Names and globs of patch files below one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import UsageError
from patchkit.find_patches import find_patches


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    for name in ("b.patch", "p/a.patch", "p/q/c.patch", "p/[x].patch", ".git/d.patch"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()
    (top / "p/link").symlink_to(top)
    (tmp_path / "e.patch").touch()
    return top


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("**/*.patch", ["b.patch", "p/[x].patch", "p/a.patch", "p/q/c.patch"]),
        ("p/*.patch\nb.patch", ["p/[x].patch", "p/a.patch", "b.patch"]),
        (
            "b.patch\n**/*.patch\n",
            ["b.patch", "p/[x].patch", "p/a.patch", "p/q/c.patch"],
        ),
        ("./b.patch\r\n\n", ["b.patch"]),
        ("p/[x].patch", ["p/[x].patch"]),
        ("p/*\nnone/*.patch", ["p/[x].patch", "p/a.patch"]),
        ("{top}/p/q/*", ["p/q/c.patch"]),
    ],
)
def test_found(folder: Path, wanted: str, found: list[str]) -> None:
    assert find_patches(folder, wanted.replace("{top}", str(folder))) == found


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("", "no file matches an empty list"),
        ("none/*\n*.diff", r"no file matches none/\* or \*.diff"),
        ("b.patch\nnone.patch", "none.patch: no such file"),
        ("p", "p: no such file"),
        ("../e.patch", "lies outside"),
        ("p/../../*", "lies outside"),
        ("/etc/*", "lies outside"),
        ("b.patch\0", "."),
    ],
)
def test_refused(folder: Path, wanted: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        find_patches(folder, wanted)
