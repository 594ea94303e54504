"""Uses kept in the cache are those that the reader finds, or they are not taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit import kept_uses as kept
from patchkit.npu_uses import Use, find_uses

SOURCE = b"""
import torch
import torch_npu

names = {"axis": 1}
torch_npu.npu_swiglu(torch.ones(2), dim=-1)
torch_npu.npu_swiglu(*given, **names)
getattr(torch_npu, chosen)()
if hasattr(torch_npu, "npu_rotary_mul"):
    torch_npu.npu_rotary_mul
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def the_file(cache: Path) -> Path:
    [path] = cache.rglob("npu_uses/*.json")
    return path


def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: bytes) -> list[Use]:
        raise AssertionError("the source was read again")

    monkeypatch.setattr(kept, "find_uses", refuse)


def test_the_second_time_says_the_same_and_reads_nothing(monkeypatch) -> None:
    expected = find_uses(SOURCE)
    assert any(use.call and use.call.keywords for use in expected)
    assert any(use.doubt for use in expected)
    assert any(use.is_ready for use in expected)
    assert kept.kept_uses(SOURCE) == expected
    nothing_is_read(monkeypatch)
    assert kept.kept_uses(SOURCE) == expected


@pytest.mark.parametrize("damage", [b"", b"[]", b"\x00" * 99])
def test_what_is_damaged_is_read_again(own_cache: Path, damage: bytes) -> None:
    expected = kept.kept_uses(SOURCE)
    the_file(own_cache).write_bytes(damage)
    assert kept.kept_uses(SOURCE) == expected
    data = the_file(own_cache).read_bytes()
    the_file(own_cache).write_bytes(data.replace(b"swiglu", b"swigly"))
    assert kept.kept_uses(SOURCE) == expected


def test_another_reader_reads_again(own_cache: Path, monkeypatch) -> None:
    """As after a change to one of its files."""
    kept.kept_uses(SOURCE)
    monkeypatch.setattr(kept, "_readers_digest", lambda: "another")
    kept.kept_uses(SOURCE)
    assert len([*own_cache.rglob("npu_uses/*.json")]) == 2


def test_every_module_that_takes_part_is_in_the_digest() -> None:
    """What the readers import of the kit's own, and what those import."""
    folder = Path(kept.__file__).parent
    asked, seen = ["npu_uses.py"], set()
    while asked:
        name = asked.pop()
        seen.add(name)
        for line in (folder / name).read_text().splitlines():
            if line.startswith("from patchkit."):
                module = line.split()[1].removeprefix("patchkit.") + ".py"
                asked += {module} - seen
    assert seen <= {*kept._READERS}


def test_what_is_no_python_is_refused_and_not_kept(own_cache: Path) -> None:
    with pytest.raises(SyntaxError):
        kept.kept_uses(b"def (")
    assert not [*own_cache.rglob("npu_uses/*.json")]
