"""Diffs as real git writes them, for the tests of what reads and applies diffs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hypothesis import assume
from hypothesis import strategies as st

from patchkit.file_state import EXECUTABLE, REGULAR, FileState

Tree = dict[str, FileState]
DIFF = ("diff", "--full-index", "--no-color", "--no-ext-diff", "--text", "-M")


def clean_env(home: Path) -> dict[str, str]:
    """An environment in which no configuration but git's own defaults counts."""
    env = {
        key: value for key, value in os.environ.items() if not key.startswith("GIT_")
    }
    return env | {
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C",
    }


def git(folder: Path, *words: str, data: bytes | None = None) -> bytes:
    """Run git in ``folder``; its standard output."""
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        env=clean_env(folder),
        input=data,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout


def diffs(folder: Path, trees: Sequence[Mapping[str, FileState]]) -> list[bytes]:
    """Commit the trees one after the other; git's diff of each to the next."""
    git(folder, "init", "-q", "--template=", ".")
    stream = []
    for number, tree in enumerate(trees):
        stream.append(
            b"commit refs/heads/c%d\ncommitter t <t@t> 0 +0000\ndata 0\n\ndeleteall\n"
            % number
        )
        for path, state in tree.items():
            stream.append(b"M %o inline %s\n" % (state.mode, path.encode()))
            stream.append(b"data %d\n%s\n" % (len(state.data), state.data))
    git(folder, "fast-import", "--quiet", "--force", data=b"".join(stream))
    return [
        git(folder, *DIFF, f"c{number}", f"c{number + 1}")
        for number in range(len(trees) - 1)
    ]


def diff(
    folder: Path, before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> bytes:
    """Git's diff between two sets of plain files."""
    return diffs(
        folder,
        [
            {path: FileState(data) for path, data in side.items()}
            for side in (before, after)
        ],
    )[0]


def lines(*texts: str) -> bytes:
    """The texts as lines of a file."""
    return "".join(text + "\n" for text in texts).encode()


# Few distinct lines, so that context repeats; and every kind that tools trip over.
LINES = st.sampled_from(
    [
        b"a",
        b"a",
        b"",
        b"    return x",
        b"\x0c",
        "caf\u00e9 \u2028 x".encode(),
        b"caf\xe9",
        b"line\r",
        b"-- x",
        b"++ x",
        b"@@ -1 +1 @@",
        b"diff --git a/a b/a",
        b"\\ No newline at end of file",
    ]
)
PATHS = st.sampled_from(
    ["a.py", "pkg/b.py", "pkg/with space.py", "pkg/caf\u00e9.py", "deep/er/c", "run.sh"]
)


@st.composite
def contents(draw: st.DrawFn, least: int = 0, most: int = 24) -> bytes:
    body = draw(st.lists(LINES, min_size=least, max_size=most))
    data = b"".join(line + b"\n" for line in body)
    return data[:-1] if data and draw(st.integers(0, 4)) == 0 else data


@st.composite
def edits(draw: st.DrawFn, data: bytes) -> bytes:
    """The content after one change of a few lines."""
    body = data.split(b"\n")
    at = draw(st.integers(0, len(body)))
    gone = draw(st.integers(0, 3))
    body[at : at + gone] = draw(st.lists(LINES, min_size=0, max_size=3))
    return b"\n".join(body)


@st.composite
def histories(draw: st.DrawFn, most: int = 4) -> list[Tree]:
    """Trees of which each differs from the one before."""
    modes = st.sampled_from([REGULAR, REGULAR, EXECUTABLE])
    tree: Tree = {
        path: FileState(draw(contents()), draw(modes))
        for path in draw(st.lists(PATHS, min_size=1, max_size=4, unique=True))
    }
    trees = [tree]
    for _ in range(draw(st.integers(1, most))):
        tree = dict(tree)
        for _ in range(draw(st.integers(1, 3))):
            _change(draw, tree)
        if tree != trees[-1]:
            trees.append(tree)
    assume(len(trees) > 1)
    return trees


def _change(draw: st.DrawFn, tree: Tree) -> None:
    path = draw(PATHS)
    if path not in tree:
        if tree and draw(st.booleans()):
            old = draw(st.sampled_from(sorted(tree)))
            state = tree.pop(old)
            data = draw(edits(state.data)) if draw(st.booleans()) else state.data
            tree[path] = FileState(data, state.mode)
        else:
            tree[path] = FileState(draw(contents()))
        return
    state = tree[path]
    kind = draw(st.sampled_from(["edit", "edit", "edit", "delete", "mode"]))
    if kind == "delete":
        del tree[path]
    elif kind == "mode":
        tree[path] = FileState(state.data, state.mode ^ 0o111)
    else:
        tree[path] = FileState(draw(edits(state.data)), state.mode)
