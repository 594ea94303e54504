"""Diffs that git writes seldom, and that are as good as any other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from real_git import DIFF, git
from test_commit import NOBODY, snapshot

from patchkit.apply_command import Request, run
from patchkit.findings import has_errors
from patchkit.parse import parse_patch
from patchkit.plan_types import Policy
from patchkit.verify import verify_files

Files = Mapping[str, bytes]


def lay(root: Path, files: Files) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def make(folder: Path, before: Files, after: Files, *words: str) -> str:
    """Both trees below ``folder``, and git's diff between them; ``words`` for init."""
    lay(folder / "tree", before)
    lay(folder / "wanted", after)
    repo = folder / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "--template=", *words, ".")
    for number, files in enumerate((before, after)):
        for path in [path for path in repo.iterdir() if path.name != ".git"]:
            git(repo, "rm", "-rq", path.name)
        lay(repo, files)
        git(repo, "add", "-A")
        git(repo, "-c", "user.name=t", "-c", "user.email=t", "commit", "-qm", "x")
        git(repo, "tag", f"c{number}")
    data = git(repo, *DIFF, "-B", "c0", "c1")
    (folder / "p.patch").write_bytes(data)
    return str(folder / "p.patch")


def there_and_back(folder: Path, patch: str, policy: Policy = "exact") -> None:
    root = folder / "tree"
    before = snapshot(root)
    assert not has_errors(verify_files([patch], tree=root).findings)
    for state in ("fits", "applied", "already"):
        action = "check" if state == "fits" else "apply"
        outcome = run(Request(root, action, patches=(patch,), policy=policy))
        assert outcome.state == state, outcome.findings
    found, wanted = snapshot(root), snapshot(folder / "wanted")
    assert {path: found[path][-1] for path in found} == {
        path: wanted[path][-1] for path in wanted
    }
    back = run(Request(root, "revert", patches=(patch,), policy=policy))
    assert back.state == "reverted", back.findings
    assert snapshot(root) == before


@pytest.mark.parametrize("old", ["-- i;", "-- a/m", "++ i;", "index 1..2", "@@ -1 @@"])
@pytest.mark.parametrize("new", ["++ i;", "-- i;", "++ b/m", "diff --git a/m b/m"])
def test_lines_of_a_crlf_file_that_look_like_headers(
    tmp_path: Path, old: str, new: str
) -> None:
    body = "{{\r\n  a();\r\n{}\r\n--- a/m\r\n}}\r\n"
    texts = [body.format(line).encode() for line in (old, f"{new} //")]
    patch = make(tmp_path, {"m.c": texts[0]}, {"m.c": texts[1]})
    there_and_back(tmp_path, patch)


def test_a_crlf_diff_of_a_crlf_file_is_still_told(tmp_path: Path) -> None:
    patch = make(tmp_path, {"m.c": b"-- i;\r\n"}, {"m.c": b"++ i;\r\n"})
    data = Path(patch).read_bytes().replace(b"\n", b"\r\n")
    assert [found.code for found in parse_patch(data, "p").findings] == ["F004"]


def numbers(word: str, *changed: int) -> bytes:
    """A file long enough for git's -B to see through a trade of names."""
    lines = [f"{word} {number}" for number in range(400)]
    for number in changed:
        lines[number] += " changed"
    return "\n".join([*lines, ""]).encode()


def test_two_files_that_trade_names(tmp_path: Path) -> None:
    patch = make(
        tmp_path,
        {"a": numbers("one"), "b": numbers("two")},
        {"a": numbers("two", 7), "b": numbers("one", 9)},
    )
    assert Path(patch).read_bytes().count(b"rename from") == 2
    (tmp_path / "tree/a").chmod(0o640)
    if os.geteuid() == 0:
        os.chown(tmp_path / "tree/a", NOBODY, NOBODY)
    there_and_back(tmp_path, patch)


def test_a_trade_of_names_alone_cannot_be_told(tmp_path: Path) -> None:
    """Without ids a tree looks the same before and after; the hint says what helps."""
    one, two = numbers("one"), numbers("two")
    patch = make(tmp_path, {"a": one, "b": two}, {"a": two, "b": one})
    outcome = run(Request(tmp_path / "tree", patches=(patch,)))
    assert [found.code for found in outcome.findings] == ["T232"]
    assert "--no-renames" in outcome.findings[0].hint
    data = git(tmp_path / "repo", *DIFF, "--no-renames", "c0", "c1")
    Path(patch).write_bytes(data)
    there_and_back(tmp_path, patch)


@pytest.mark.parametrize("short", [False, True])
def test_a_repository_of_sha256(tmp_path: Path, short: bool) -> None:
    before = {"m": numbers("m"), "gone": b"", "old": numbers("x")}
    after = {"m": numbers("m", 5), "made": b"", "new": numbers("x", 3)}
    patch = make(tmp_path, before, after, "--object-format=sha256")
    if short:
        words = [word for word in DIFF if word != "--full-index"]
        data = git(tmp_path / "repo", *words, "c0", "c1")
        Path(patch).write_bytes(data)
    there_and_back(tmp_path, patch)
    (tmp_path / "tree/m").write_bytes(numbers("m", 300))
    request = Request(tmp_path / "tree", "check", patches=(patch,), policy="exact")
    assert "T220" in [found.code for found in run(request).findings]
