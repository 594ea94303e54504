"""The commits of a work tree as patches: what may not be there, and their diffs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchkit.clean_git import CleanGit, GitFailed
from patchkit.diff_model import Patch
from patchkit.errors import OwnBug, Refused
from patchkit.parse import parse_patch
from patchkit.patch_header import header_of, subject_of
from patchkit.report import as_text
from patchkit.work_tree import WorkTree

_UNDER_WAY = {
    "rebase-merge": ("a rebase", "git rebase --continue"),
    "rebase-apply": ("a rebase", "git rebase --continue"),
    "MERGE_HEAD": ("a merge", "git merge --abort"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "git cherry-pick --continue"),
    "sequencer": ("a cherry-pick", "git cherry-pick --continue"),
    "REVERT_HEAD": ("a revert", "git revert --continue"),
    "BISECT_LOG": ("a bisect", "git bisect reset"),
}
_FIXUPS = ("fixup! ", "squash! ", "amend! ")
_LINK, _SUBMODULE, _ABSENT = "120000", "160000", "000000"


@dataclass(frozen=True)
class TreeCommit:
    """One commit after the pinned source; ``message`` is its raw bytes."""

    id: str
    parents: tuple[str, ...]
    message: bytes

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return subject_of(self.message)

    def __str__(self) -> str:
        return f"commit {self.id[:10]} ({self.subject})"


def refuse_unfinished(tree: WorkTree) -> None:
    """Raise Refused where an operation is under way or the tree is dirty."""
    for name, (what, typed) in _UNDER_WAY.items():
        if (tree.path / ".git" / name).exists():
            raise Refused(
                f"{tree.path}: {what} is under way", hint=f"end it first: {typed}"
            )
    dirty = tree.git.output("status", "--porcelain=v1", "-z", "--no-renames")
    names = [row[3:] for row in dirty.decode("utf-8", "replace").split("\0") if row]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise Refused(
            f"{tree.path}: not committed: {', '.join(names[:3])}{more}",
            hint="git add and git commit --amend, or git stash -u",
        )


def read_commits(tree: WorkTree) -> list[TreeCommit]:
    """The commits from the pinned source to HEAD, in order.

    Raises Refused for a merge, a fixup that waits for its rebase, or a history that
    does not begin at the pinned source.
    """
    git, base = tree.git, tree.record.base
    if git.answer("merge-base", "--is-ancestor", base, "HEAD").status:
        raise Refused(
            f"{tree.path}: HEAD does not descend from the pinned source "
            f"({base[:10]}, tag pinned)",
            hint="git rebase --onto pinned …, or git reset --hard series@{1}",
        )
    rows = git.text("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..")
    commits = []
    for row in rows.split("\n"):
        if not row:
            continue
        name, *parents = row.split()
        raw = git.output("cat-file", "commit", name)
        commits.append(TreeCommit(name, tuple(parents), _message(name, raw)))
    for commit in commits:
        if len(commit.parents) != 1:
            raise Refused(
                f"{commit} is a merge: a series is a line of patches",
                hint="git rebase pinned makes it one",
            )
        if commit.subject.startswith(_FIXUPS):
            raise Refused(
                f"{commit} is to be melted into another one",
                hint="git rebase -i --autosquash pinned",
            )
    return commits


def _message(name: str, raw: bytes) -> bytes:
    head, _, message = raw.partition(b"\n\n")
    if b"\nencoding " in head:
        raise Refused(
            f"commit {name[:10]}: its message is in another encoding than UTF-8",
            hint="git config --unset i18n.commitEncoding; git commit --amend",
        )
    return message


def read_commit_patch(
    tree: WorkTree, commit: TreeCommit, name: str
) -> tuple[bytes, Patch]:
    """The patch file of a commit: its bytes, and what the kit reads in them.

    Raises Refused when the commit cannot be a patch of the kit: it is empty, holds a
    link, a submodule or a binary file, or touches a file outside the pinned tree.
    """
    try:
        header = header_of(commit.message)
    except Refused as refusal:
        raise Refused(f"{commit}: {refusal}", hint=refusal.hint) from None
    _refuse_paths(tree, commit)
    diff = diff_of(tree.git, commit.parents[0], commit.id)
    if not diff:
        raise Refused(
            f"{commit} changes nothing", hint="git rebase -i pinned, and drop it"
        )
    data = header + diff
    result = parse_patch(data, name)
    errors = [found for found in result.findings if found.severity == "error"]
    if errors or result.patch is None:
        said = "\n".join(line for found in errors[:3] for line in as_text(found))
        raise Refused(f"{commit} is no diff that the kit can hold:\n{said}")
    if result.patch.header != header:
        raise OwnBug(f"{commit}: the header was not read back as it was written")
    return data, result.patch


def diff_of(git: CleanGit, before: str, after: str) -> bytes:
    """The diff between two commits, in the one form that patch files have.

    It is that of ``git diff --full-index``: plumbing, so that no configuration of a
    person has a say in it.
    """
    return git.output(
        "diff-tree", "-p", "-r", "-M", "-l0", "--full-index", "-U3",
        "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic",
        "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/",
        "--dst-prefix=b/", "--no-commit-id", before, after,
    )  # fmt: skip


def _refuse_paths(tree: WorkTree, commit: TreeCommit) -> None:
    rows = tree.git.output(
        "diff-tree", "-r", "-z", "--no-renames", "--no-commit-id",
        commit.parents[0], commit.id,
    )  # fmt: skip
    words = rows.decode("utf-8", "surrogateescape").split("\0")[:-1]
    for about, path in zip(words[::2], words[1::2], strict=True):
        old, new = about.lstrip(":").split()[:2]
        kinds = {old, new}
        if _SUBMODULE in kinds or _LINK in kinds:
            what = "a submodule" if _SUBMODULE in kinds else "a symbolic link"
            raise Refused(f"{commit}: {path} is {what}; patches hold regular files")
        if old == _ABSENT and not _has_place(tree, path):
            raise Refused(
                f"{commit}: {path} lies outside the pinned tree, which has no such "
                "file or folder at its top",
                hint="keep notes and scratch files elsewhere, or in .git/info/exclude",
            )


def _has_place(tree: WorkTree, path: str) -> bool:
    """Whether a new file lies in a folder that the pinned source has at its top.

    A file there may come back after an earlier commit removed it.
    """
    top, inside, _ = path.partition("/")
    try:
        kind = tree.git.text("cat-file", "-t", f"{tree.record.base}:{top}")
    except GitFailed:
        return False
    return kind == ("tree" if inside else "blob")


def outside_package(patch: Patch, package: str = "vllm") -> list[str]:
    """The paths of a patch that are not below the package's folder.

    A source tree has them; an installed one and an image do not.
    """
    paths = [change.path for change in patch.files]
    return [path for path in paths if Path(path).parts[0] != package]
