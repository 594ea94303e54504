"""A small project of its own: a release with a series, its sdist in the cache."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from local_index import FILE, make_sdist, pin

from patchkit import series as series_module
from patchkit.releases import Release, Releases
from patchkit.work_tree import WorkTree, make_work_tree

FILES = {
    "pyproject.toml": b"[tool.ruff]\nline-length = 88\n",
    "README.md": b"a project\n",
    "vllm/__init__.py": b"",
    "vllm/a.py": b"".join(b"a%d = %d\n" % (n, n) for n in range(1, 41)),
    "vllm/b.py": b"".join(b"b%d = %d\n" % (n, n) for n in range(1, 41)),
    "vllm/run.sh": b"#!/bin/sh\n",
}
USER = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@localhost",
}
MESSAGE = "{subject}\n\nWhat {subject} does.\n\nUpstream: nothing\n"


def make_project(
    folder: Path, patch: pytest.MonkeyPatch, files: Mapping[str, bytes] = FILES
) -> Releases:
    """A project below ``folder`` with release 1, version 1.0 and no series yet."""
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    for key, value in USER.items():
        patch.setenv(key, value)
    patch.setattr(series_module, "PROJECT", folder)
    patch.setattr("patchkit.releases.PROJECT", folder)
    data = make_sdist(files)
    sdists = folder / "cache" / "vllm-patchkit" / "sdists"
    sdists.mkdir(parents=True, exist_ok=True)
    (sdists / FILE).write_bytes(data)
    release = pin(data)
    release.path.mkdir(parents=True, exist_ok=True)
    return Releases(file=folder / "releases.toml", release={"1": release})


def new_tree(release: Release, target: Path) -> WorkTree:
    """A work tree of the release, whose series may be empty."""
    return make_work_tree(release, target, new_series=True)


def run_git(tree: Path, *words: str, stdin: str = "") -> str:
    """Ordinary git, as a maintainer types it; fails the test when git does."""
    done = subprocess.run(
        ["git", "-c", "core.editor=true", *words],
        cwd=tree,
        input=stdin,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commit(tree: Path, subject: str, files: Mapping[str, bytes | None]) -> None:
    """Write ``files`` (None removes one) and commit them with a sound message."""
    for path, data in files.items():
        file = tree / path
        if data is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    run_git(tree, "add", "-A")
    run_git(tree, "commit", "-q", "-F", "-", stdin=MESSAGE.format(subject=subject))


def rebase(tree: Path, todo: Sequence[str]) -> None:
    """Run ``git rebase -i pinned`` with ``todo`` as the list, a line each."""
    editor = tree.parent / "todo.sh"
    text = "\n".join(todo)
    editor.write_text(f"cat > \"$1\" <<'TODO'\n{text}\nTODO\n")
    words = ("-c", f"sequence.editor=sh {editor}", "rebase", "-q", "-i", "pinned")
    run_git(tree, *words)


def patch_files(release: Release) -> dict[str, bytes]:
    """Every file of the release's folder, by name."""
    return {file.name: file.read_bytes() for file in release.path.iterdir()}
