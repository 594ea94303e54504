"""Whatever git does to the commits, the refreshed series is the tree, by git's word."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kit_project import FILES, commit, make_project, new_tree, rebase, run_git

from patchkit.refresh import plan_refresh, write_refresh
from patchkit.releases import Release, Releases
from patchkit.work_tree import open_work_tree

PATHS = ["vllm/a.py", "vllm/b.py", "vllm/new.py", "vllm/sub/deep.py", "README.md"]
LINE = st.sampled_from([b"x = 1", b"", b"    y = 2", b"-- z", b"++ z", b"@@ -1 +1 @@"])
EDIT = st.tuples(
    st.just("edit"),
    st.sampled_from(PATHS),
    st.lists(st.tuples(st.integers(0, 45), LINE), min_size=1, max_size=4),
    st.booleans(),
)
OTHER = st.tuples(
    st.sampled_from(["amend", "drop", "swap", "split", "remove", "reword", "mode"]),
    st.integers(0, 5),
)


def edited(data: bytes, lines: list[tuple[int, bytes]], newline: bool) -> bytes:
    """Lines put in at, or over, places of the file; the last newline may go."""
    rows = data.split(b"\n")[:-1] if data.endswith(b"\n") else data.split(b"\n")
    for place, line in lines:
        if place % 2:
            rows.insert(place % (len(rows) + 1), line)
        elif rows:
            rows[place % len(rows)] = line
    return b"\n".join(rows) + (b"\n" if newline else b"")


class Maintainer:
    """Does to a work tree what a person would, with ordinary git."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.count = 0

    def commits(self) -> list[str]:
        return run_git(self.tree, "rev-list", "--reverse", "pinned..").split()

    def do(self, step: tuple) -> None:  # type: ignore[type-arg]
        self.count += 1
        if step[0] == "edit":
            _, path, lines, newline = step
            file = self.tree / path
            old = file.read_bytes() if file.exists() else b""
            new = edited(old, lines, newline)
            if new != old:
                commit(self.tree, f"Change {self.count}", {path: new})
            return
        getattr(self, step[0])(step[1])

    def amend(self, number: int) -> None:
        if self.commits():
            (self.tree / "vllm" / f"amended{number}.py").write_bytes(b"m = 1\n")
            run_git(self.tree, "add", "-A")
            run_git(self.tree, "commit", "-q", "--amend", "--no-edit", "--allow-empty")

    def reword(self, number: int) -> None:
        if self.commits():
            words = ("-m", f"Reworded {number}", "-m", "Text.", "-m", "Upstream: no")
            run_git(self.tree, "commit", "-q", "--amend", "--allow-empty", *words)

    def remove(self, number: int) -> None:
        files = [p for p in PATHS if (self.tree / p).exists()]
        path = files[number % len(files)]
        commit(self.tree, f"Remove {self.count}", {path: None})

    def mode(self, _number: int) -> None:
        file = self.tree / "vllm" / "run.sh"
        file.chmod(file.stat().st_mode ^ 0o111)
        commit(self.tree, f"Mode {self.count}", {})

    def drop(self, number: int) -> None:
        left = self.commits()
        if len(left) > 1:
            del left[number % len(left)]
            self.rebase(left)

    def swap(self, number: int) -> None:
        left = self.commits()
        if len(left) > 1:
            at = number % (len(left) - 1)
            left[at], left[at + 1] = left[at + 1], left[at]
            self.rebase(left)

    def rebase(self, left: list[str]) -> None:
        """A rebase that conflicts is given up, as a person may."""
        head = run_git(self.tree, "rev-parse", "HEAD").strip()
        try:
            rebase(self.tree, [f"pick {each}" for each in left])
        except AssertionError:
            subprocess.run(
                ["git", "rebase", "--abort"],
                cwd=self.tree,
                check=False,
                capture_output=True,
            )
            run_git(self.tree, "reset", "-q", "--hard", head)

    def split(self, number: int) -> None:
        """The last commit in two, by a new file put into a commit of its own."""
        if not self.commits():
            return
        path = f"vllm/split{self.count}.py"
        (self.tree / path).write_bytes(b"s = %d\n" % number)
        run_git(self.tree, "add", "-A")
        run_git(self.tree, "commit", "-q", "--amend", "--no-edit")
        run_git(self.tree, "reset", "-q", "--soft", "HEAD~1")
        run_git(self.tree, "reset", "-q", path)
        message = f"First half {self.count}\n\nText.\n\nUpstream: no\n"
        words = ("commit", "-q", "--allow-empty", "-F", "-")
        run_git(self.tree, *words, stdin=message)
        commit(self.tree, f"Second half {self.count}", {})

    def drop_empty(self) -> None:
        """What a rebase leaves without changes is dropped, as the refusal says."""
        kept = [
            each
            for each in self.commits()
            if run_git(self.tree, "diff-tree", "-r", f"{each}~1", each)
        ]
        if kept and len(kept) < len(self.commits()):
            rebase(self.tree, [f"pick {each}" for each in kept])
        elif not kept:
            run_git(self.tree, "reset", "-q", "--hard", "pinned")


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# A file at the top that an earlier commit removed comes back.
@example([[("remove", 2), ("edit", "README.md", [(0, b"x = 1")], False)]])
@given(st.lists(st.lists(EDIT | OTHER, min_size=1, max_size=4), min_size=1, max_size=3))
def test_series_is_the_tree(rounds: list) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name).resolve()
        releases = make_project(folder, patch)
        release = releases.release["1"]
        tree = folder / "build" / "tree"
        new_tree(release, tree)
        person = Maintainer(tree)
        for steps in rounds:
            for step in steps:
                person.do(step)
            person.drop_empty()
            write_refresh(plan_refresh(releases, open_work_tree(tree)))
            check(releases, release, tree, folder / f"applied{person.count}")


def check(releases: Releases, release: Release, tree: Path, folder: Path) -> None:
    """git applies the files to the pinned source, and comes to the tree's bytes."""
    for path, data in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        (folder / path).chmod(0o755 if path.endswith(".sh") else 0o644)
    run_git(folder, "init", "-q", ".")
    lines = (release.path / "series").read_text().splitlines()
    entries = [line for line in lines if line and not line.startswith("#")]
    for entry in entries:
        patch = str(release.path / entry)
        run_git(folder, "apply", "--whitespace=nowarn", patch)
    assert snapshot(folder) == snapshot(tree)
    listed = {file.name for file in release.path.glob("*.patch")}
    assert listed == set(entries)
    assert plan_refresh(releases, open_work_tree(tree)).written == ()


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Each file's bytes, and whether it can be executed."""
    return {
        file.relative_to(folder).as_posix(): (
            file.read_bytes(),
            file.stat().st_mode & 0o100,
        )
        for file in folder.rglob("*")
        if file.is_file() and ".git" not in file.relative_to(folder).parts
    }
