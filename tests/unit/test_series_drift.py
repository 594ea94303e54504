"""How hunks fit another source: constructed cases, and git apply's own word."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit_project import USER

from patchkit.clean_git import CleanGit
from patchkit.drift_report import drift_json, drift_text
from patchkit.hunk_fit import FitKind
from patchkit.parse import parse_patch
from patchkit.series_drift import HunkFit, SeriesDrift, find_drift
from patchkit.source_store import CommitSource
from patchkit.tree_commits import diff_of

Files = Mapping[str, bytes]


def lines(name: str, count: int = 60) -> list[bytes]:
    return [b"%s%d = %d" % (name.encode(), n, n) for n in range(1, count + 1)]


def text(rows: list[bytes]) -> bytes:
    return b"".join(row + b"\n" for row in rows)


BASE = text(lines("a"))
OTHER = text(lines("b"))


class Repository:
    """Commits of whole trees, made by real git."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        for key, value in USER.items():
            patch.setenv(key, value)
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.run("init", "-q", ".")
        self.git = CleanGit(folder)

    def run(self, *words: str) -> str:
        return subprocess.run(
            ["git", *words],
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def commit(self, files: Files) -> str:
        for old in self.folder.rglob("*"):
            if old.is_file() and ".git" not in old.parts:
                old.unlink()
        for path, data in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(data)
        self.run("add", "-A")
        self.run("commit", "-q", "--allow-empty", "-m", "x")
        return self.run("rev-parse", "HEAD").strip()

    def drift(self, source: Files, steps: list[Files], target: Files) -> SeriesDrift:
        """The drift of a series with one patch a step, from source to target."""
        base = self.commit(source)
        before, patches = base, []
        for number, files in enumerate(steps, 1):
            after = self.commit(files)
            diff = diff_of(self.git, before, after)
            data = b"Subject: %d\n\nText.\n\nUpstream: no\n---\n" % number + diff
            patch = parse_patch(data, f"000{number}-x.patch").patch
            assert patch is not None
            patches.append(patch)
            before = after
        there = CommitSource(self.git, self.commit(target), "target")
        return find_drift(patches, self.git, CommitSource(self.git, base, "src"), there)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    return Repository(tmp_path / "repo", monkeypatch)


PATCHED = BASE.replace(b"a30 = 30\n", b"a30 = 30\nnew = 1\n")


def one(repo: Repository, target: Files, source: Files | None = None) -> HunkFit:
    files = source or {"m.py": BASE}
    drift = repo.drift(files, [{**files, "m.py": PATCHED}], target)
    (patch,) = drift.patches
    (hunk,) = patch.hunks
    return hunk


def test_exact(repo: Repository) -> None:
    assert one(repo, {"m.py": BASE}).kind == "exact"
    changed = BASE.replace(b"a50 = 50\n", b"a50 = 51\n")
    hunk = one(repo, {"m.py": changed})
    assert (hunk.kind, hunk.offset) == ("exact", 0)


def test_as_it_is_asks_for_the_ids_too(repo: Repository) -> None:
    files = {"m.py": BASE}
    changed = {"m.py": BASE.replace(b"a50 = 50\n", b"a50 = 51\n")}
    same = repo.drift(files, [{"m.py": PATCHED}], files)
    other = repo.drift(files, [{"m.py": PATCHED}], changed)
    assert same.patches[0].as_it_is
    assert not other.patches[0].as_it_is


@pytest.mark.parametrize("added", [1, 7])
def test_moved(repo: Repository, added: int) -> None:
    head = text(lines("head", added))
    hunk = one(repo, {"m.py": head + BASE})
    assert (hunk.kind, hunk.offset) == ("moved", added)
    shorter = text(lines("a")[added:])
    hunk = one(repo, {"m.py": shorter})
    assert (hunk.kind, hunk.offset) == ("moved", -added)


def test_a_look_alike_at_the_declared_line_is_not_exact(repo: Repository) -> None:
    """The function moved down; where it stood is another one with the same lines."""
    block = text([b"    x = 1", b"    y = 2", b"    z = 3", b"    return x", b""])
    source = b"def f():\n" + block + b"def g():\n" + OTHER
    patched = source.replace(b"    y = 2\n", b"    y = 2\n    new = 1\n", 1)
    target = b"def h():\n" + block + b"def f():\n" + block + b"def g():\n" + OTHER
    drift = repo.drift({"m.py": source}, [{"m.py": patched}], {"m.py": target})
    (hunk,) = drift.patches[0].hunks
    assert hunk.kind != "exact"


def test_merged_where_only_context_changed(repo: Repository) -> None:
    changed = BASE.replace(b"a28 = 28\n", b"a28 = 0\n")
    hunk = one(repo, {"m.py": changed})
    assert hunk.kind == "merged"
    (cause,) = hunk.causes
    assert (cause.from_line, cause.removed) == (28, (b"a28 = 28\n",))
    assert (cause.to_line, cause.added) == (28, (b"a28 = 0\n",))


def test_conflict_names_the_smallest_change(repo: Repository) -> None:
    """Changes away from the hunk are not what broke it."""
    changed = BASE.replace(b"a3 = 3\n", b"").replace(b"a30 = 30\n", b"a30 = 31\n")
    changed = changed.replace(b"a55 = 55\n", b"a55 = 0\n")
    hunk = one(repo, {"m.py": changed})
    assert hunk.kind == "conflict"
    (cause,) = hunk.causes
    assert (cause.from_line, cause.removed) == (30, (b"a30 = 30\n",))
    assert (cause.to_line, cause.added) == (29, (b"a30 = 31\n",))
    assert hunk.expected == (28, tuple(BASE.splitlines(keepends=True)[27:33]))
    assert b"a30 = 31\n" in hunk.found[1]


def test_upstream_has_it(repo: Repository) -> None:
    assert one(repo, {"m.py": PATCHED}).kind == "upstream"
    moved = text(lines("head", 5)) + PATCHED
    assert one(repo, {"m.py": moved}).kind == "upstream"


def test_gone_and_renamed(repo: Repository) -> None:
    source = {"m.py": BASE, "k.py": OTHER}
    assert one(repo, {"k.py": OTHER}, source).kind == "gone"
    hunk = one(repo, {"k.py": OTHER, "sub/n.py": BASE}, source)
    assert (hunk.kind, hunk.to_path, hunk.inner) == ("renamed", "sub/n.py", "exact")
    edited = BASE.replace(b"a30 = 30\n", b"a30 = 31\n")
    hunk = one(repo, {"k.py": OTHER, "sub/n.py": edited}, source)
    assert (hunk.kind, hunk.inner, hunk.merges) == ("renamed", "conflict", False)
    assert [cause.path for cause in hunk.causes] == ["sub/n.py"]


def test_new_file(repo: Repository) -> None:
    source = {"m.py": BASE}
    steps: list[Files] = [{"m.py": BASE, "n.py": b"n = 1\n"}]
    kinds: dict[bytes, FitKind] = {b"n = 1\n": "upstream", b"other = 1\n": "conflict"}
    for there, kind in kinds.items():
        drift = repo.drift(source, steps, {"m.py": BASE, "n.py": there})
        assert drift.patches[0].kind == kind
    assert repo.drift(source, steps, source).patches[0].kind == "exact"


def test_later_patch_rests_on_one_that_fails(repo: Repository) -> None:
    second = PATCHED.replace(b"new = 1\n", b"new = 1\nmore = 2\n")
    target = {"m.py": BASE.replace(b"a30 = 30\na31 = 31\n", b"a30 = 31\n")}
    drift = repo.drift({"m.py": BASE}, [{"m.py": PATCHED}, {"m.py": second}], target)
    first, last = (patch.hunks[0] for patch in drift.patches)
    assert (first.kind, last.kind) == ("conflict", "conflict")
    # What a hunk before it broke is upstream's doing as well, and said so.
    assert last.causes or last.rests_on == "0001-x.patch"


def test_later_patch_stands_on_one_that_moved(repo: Repository) -> None:
    second = PATCHED.replace(b"new = 1\n", b"new = 1\nmore = 2\n")
    target = {"m.py": text(lines("head", 4)) + BASE}
    drift = repo.drift({"m.py": BASE}, [{"m.py": PATCHED}, {"m.py": second}], target)
    fits = [(patch.hunks[0].kind, patch.hunks[0].offset) for patch in drift.patches]
    assert fits == [("moved", 4), ("moved", 4)]


def test_deleted_file(repo: Repository) -> None:
    source = {"m.py": BASE, "n.py": b"n = 1\n"}
    steps: list[Files] = [{"m.py": BASE}]
    assert repo.drift(source, steps, source).patches[0].kind == "exact"
    grown = {"m.py": BASE, "n.py": b"n = 1\nmore = 2\n"}
    assert repo.drift(source, steps, grown).patches[0].kind == "conflict"
    assert repo.drift(source, steps, {"m.py": BASE}).patches[0].kind == "gone"


EDITS = st.lists(
    st.tuples(st.integers(0, 59), st.sampled_from(["insert", "delete", "change"])),
    min_size=0,
    max_size=5,
)


def edit(rows: list[bytes], edits: list[tuple[int, str]], mark: bytes) -> bytes:
    out = list(rows)
    for number, (place, how) in enumerate(edits):
        at = place % len(out)
        if how == "insert":
            out.insert(at, b"%s_i%d = 0" % (mark, number))
        elif how == "delete":
            del out[at]
        else:
            out[at] = b"%s_c%d = 0" % (mark, number)
    return text(out)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(EDITS.filter(bool), EDITS)
def test_exact_and_moved_are_git_apply_s_word(
    repo: Repository, ours: list[tuple[int, str]], theirs: list[tuple[int, str]]
) -> None:
    """With lines that stand once, a hunk fits in one place or in none."""
    rows = lines("a")
    files = {"m.py": text(rows)}
    patched, target = edit(rows, ours, b"p"), edit(rows, theirs, b"u")
    if patched == files["m.py"]:
        return
    drift = repo.drift(files, [{"m.py": patched}], {"m.py": target})
    for number, fit in enumerate(drift.patches[0].hunks):
        offset = git_offset(repo, number, target)
        if fit.kind in ("exact", "moved"):
            assert offset == fit.offset, drift_text(drift)
        elif fit.kind != "upstream":
            assert offset is None, drift_text(drift)
    assert sum(drift.counts.values()) == len(drift.patches[0].hunks)
    json = drift_json(drift)
    assert json["counts"] == drift.counts


def git_offset(repo: Repository, number: int, target: bytes) -> int | None:
    """By how many lines git moves hunk ``number`` to apply it; None: not at all."""
    head = repo.run("rev-parse", "HEAD").strip()
    diff = repo.run("diff-tree", "-p", "-U3", "--full-index", f"{head}~2", f"{head}~1")
    start, *hunks = re.split(r"^(?=@@ )", diff, flags=re.MULTILINE)
    (repo.folder / "m.py").write_bytes(target)
    done = subprocess.run(
        ["git", "apply", "--check", "-v", "-"],
        cwd=repo.folder,
        input=start + hunks[number],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return None
    # git counts from the new side's start, where the hunks before it would put it.
    header = re.match(r"@@ -(\d+)\S* \+(\d+)", hunks[number])
    assert header is not None
    moved = re.search(r"\(offset (-?\d+) line", done.stderr)
    return (int(moved[1]) if moved else 0) + int(header[2]) - int(header[1])
