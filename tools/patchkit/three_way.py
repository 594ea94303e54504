"""git's own 3-way merge, of one file at a time, in a repository that goes away."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchkit.clean_git import KIT_IDENTITY, CleanGit, GitFailed

_NAME = "file"


@dataclass(frozen=True)
class Merged:
    """The result of a merge; with conflicts ``data`` has git's markers."""

    clean: bool
    data: bytes


class ThreeWay:
    """Merges as ``git cherry-pick`` does; objects of ``store`` can be named."""

    def __init__(self, git: CleanGit) -> None:
        self.git = git
        self._commits: dict[tuple[bytes, str], str] = {}

    def blob(self, data: bytes) -> str:
        """Keep ``data`` as a blob; returns its id."""
        return self.git.text("hash-object", "-w", "--stdin", stdin=data)

    def merge(self, base: bytes, ours: bytes, theirs: bytes) -> Merged:
        """What ``theirs`` changed in ``base``, put over ``ours``.

        Raises GitFailed where git cannot merge at all, as with binary files.
        """
        if base == ours:
            return Merged(True, theirs)
        root = self._commit(base, "")
        words = ("merge-tree", "--write-tree", "--no-messages")
        answer = self.git.answer(
            *words, self._commit(ours, root), self._commit(theirs, root)
        )
        if answer.status not in (0, 1):
            raise self.git.failure(words, answer)
        tree = answer.stdout.decode().split("\n")[0]
        data = self.git.output("cat-file", "blob", f"{tree}:{_NAME}")
        return Merged(answer.status == 0, data)

    def _commit(self, data: bytes, parent: str) -> str:
        if (data, parent) not in self._commits:
            row = f"100644 blob {self.blob(data)}\t{_NAME}\n".encode()
            tree = self.git.text("mktree", stdin=row)
            parents = ("-p", parent) if parent else ()
            words = ("commit-tree", tree, *parents, "-m", "a side")
            made = self.git.text(*words, env=KIT_IDENTITY)
            self._commits[data, parent] = made
        return self._commits[data, parent]


@contextmanager
def three_way(store: CleanGit | None = None) -> Iterator[ThreeWay]:
    """A scratch repository to merge in, which can read what ``store`` has."""
    with tempfile.TemporaryDirectory(prefix="vllm-patchkit-merge-") as name:
        git = CleanGit(Path(name))
        git.output("init", "-q", "--bare", "--template=", ".")
        if store is not None:
            alternates = Path(name) / "objects" / "info" / "alternates"
            alternates.parent.mkdir(exist_ok=True)
            alternates.write_text(f"{store.folder.resolve() / 'objects'}\n")
        yield ThreeWay(git)


__all__ = ["GitFailed", "Merged", "ThreeWay", "three_way"]
