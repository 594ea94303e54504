"""Which patch file each commit of a work tree was before, if it was one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchkit.diff_model import Patch
from patchkit.parse import parse_patch
from patchkit.releases import Release
from patchkit.tree_commits import TreeCommit, read_commit_patch
from patchkit.work_tree import PatchCommit, WorkTree


@dataclass(frozen=True)
class CommitPatch:
    """A commit, the patch file made of it, and the one that it was before.

    ``data`` is the text to write: for a commit that nobody touched the file's own.
    """

    commit: TreeCommit
    data: bytes
    patch: Patch
    was: PatchCommit | None


def read_commit_patches(
    tree: WorkTree, release: Release, commits: Sequence[TreeCommit]
) -> list[CommitPatch]:
    """The patches of the commits, in order.

    A commit is the patch that it was made of: by its id, else by its subject, else
    by what it adds and removes. Raises Refused as ``read_commit_patch`` does.
    """
    texts = [read_commit_patch(tree, commit, str(commit)) for commit in commits]
    left = list(tree.record.patches)
    old = {each: _old_text(release, each) for each in left}
    found: list[PatchCommit | None] = [None] * len(commits)

    def take(same: Callable[[int, PatchCommit], bool]) -> None:
        for number in range(len(commits)):
            if found[number] is None:
                fit = next((each for each in left if same(number, each)), None)
                if fit is not None:
                    found[number] = fit
                    left.remove(fit)

    take(lambda number, each: each.commit == commits[number].id)
    take(lambda number, each: old[each][0] == _subject(texts[number][1]))
    take(lambda number, each: old[each][1] == _changes(texts[number][1]))
    out = []
    for commit, (data, patch), was in zip(commits, texts, found, strict=True):
        untouched = was is not None and was.commit == commit.id
        text = (release.path / was.entry).read_bytes() if was and untouched else data
        out.append(CommitPatch(commit, text, patch, was))
    return out


def _old_text(release: Release, each: PatchCommit) -> tuple[bytes, object]:
    data = (release.path / each.entry).read_bytes()
    patch = parse_patch(data, each.entry).patch
    return (_subject(patch), _changes(patch)) if patch else (b"", None)


def _subject(patch: Patch) -> bytes:
    return patch.header.partition(b"\n")[0]


def _changes(patch: Patch) -> object:
    """What a patch adds and removes, without places and context."""
    return [
        (
            change.path,
            [
                (line.kind, line.data)
                for hunk in change.hunks
                for line in hunk.lines
                if line.kind != " "
            ],
        )
        for change in patch.files
    ]
