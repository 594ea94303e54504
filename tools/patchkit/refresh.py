"""The commits of a work tree written back as patch files, series and ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from patchkit import releases as releases_module
from patchkit.blob import blob_id
from patchkit.commit import commit_to_tree
from patchkit.commit_patches import CommitPatch, read_commit_patches
from patchkit.diff_model import Patch
from patchkit.drift import findings as misfit_findings
from patchkit.errors import OwnBug, Refused
from patchkit.patch_names import slug, stem_of
from patchkit.plan_types import Plan
from patchkit.releases import Release, Releases
from patchkit.report import as_text
from patchkit.series_draft import (
    DraftPatch,
    SeriesDraft,
    equal_text,
    plan_drafts,
    read_draft,
)
from patchkit.series_file import SERIES_FILES
from patchkit.shared_texts import follow_references
from patchkit.source_store import CommitSource
from patchkit.step import take_step
from patchkit.tree_commits import (
    TreeCommit,
    outside_package,
    read_commits,
    refuse_unfinished,
)
from patchkit.virtual_tree import VirtualTree
from patchkit.work_tree import (
    TreeRecord,
    WorkTree,
    file_sha256,
    series_record,
    write_record,
)

Fate = Literal["kept", "changed", "renamed", "added"]


@dataclass(frozen=True)
class KnownPatch:
    """What is known of a new commit: its name without number, and its ledger table."""

    stem: str
    ledger: Mapping[str, str]


@dataclass(frozen=True)
class RefreshedPatch:
    """What became of one commit: its patch file and how that differs from before."""

    path: str
    commit: str
    fate: Fate
    before: str | None = None


@dataclass(frozen=True)
class Refresh:
    """What a refresh writes. ``notes`` are for a person; ``plan`` has every byte."""

    tree: WorkTree
    release: Release
    plan: Plan
    patches: tuple[RefreshedPatch, ...]
    dropped: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def written(self) -> tuple[str, ...]:
        """The files that change, relative to the project."""
        return tuple(file.path for file in self.plan.changes)


def plan_refresh(
    releases: Releases,
    tree: WorkTree,
    *,
    offline: bool = False,
    known: Callable[[TreeCommit], KnownPatch | None] = lambda _: None,
) -> Refresh:
    """Work out the files for a tree's commits; nothing is written.

    ``known`` gives name and ledger table of a new commit, where they are known.

    Raises Refused, with the reason, for a tree that cannot be a series now: dirty, in
    the middle of a rebase, with a merge, with commits that are no patches, or with
    patch files that were edited since the tree was made.
    """
    record = tree.record
    release = releases.release.get(record.release)
    if release is None or record.version not in release.versions:
        raise Refused(
            f"{tree.path} was made for {record.version}, which releases.toml lacks"
        )
    _refuse_edited_files(release, record)
    refuse_unfinished(tree)
    commits = read_commits(tree)
    patches = read_commit_patches(tree, release, commits)
    old = read_draft(release)
    others = [
        read_draft(other)
        for other in releases.release.values()
        if other is not release and other.path.is_dir()
    ]
    drafted = _drafts(record, patches, others, release, known)
    behind = [
        patch
        for patch in old.patches
        if patch.series_file not in SERIES_FILES[record.flavour]
    ]
    draft = SeriesDraft(release, (*drafted, *behind))
    _check(tree, [each.patch for each in patches])
    notes: list[str] = []
    following = follow_references(old, draft, others, notes, offline=offline)
    plan = plan_drafts([draft, *following])
    return _summary(tree, plan, draft, patches, notes)


def write_refresh(refresh: Refresh) -> None:
    """Write a planned refresh, all or nothing, and note it in the work tree."""
    commit_to_tree(refresh.plan, releases_module.PROJECT, remember=False)
    note_refresh(refresh)


def note_refresh(refresh: Refresh) -> None:
    """Note in the work tree that its commits are in the patch files."""
    tree, record = refresh.tree, refresh.tree.record
    now = series_record(refresh.release, record.version, record.flavour)
    ids = [patch.commit for patch in refresh.patches]
    patches = tuple(
        replace(each, commit=commit)
        for each, commit in zip(now.patches, ids, strict=True)
    )
    head = ids[-1] if ids else record.base
    write_record(tree.path, replace(now, base=record.base, head=head, patches=patches))


def _refuse_edited_files(release: Release, record: TreeRecord) -> None:
    now = series_record(release, record.version, record.flavour)
    edited = [
        f"{release.directory}/{name}"
        for name, digest in record.files.items()
        if now.files.get(name) != digest
    ]
    edited += [
        f"{release.directory}/{each.entry}"
        for each in record.patches
        if file_sha256(release.path / each.entry) != each.sha256
    ]
    if edited:
        raise Refused(
            f"edited since the tree was made: {', '.join(edited)}",
            hint="nobody edits a hunk by hand: put the file back (git checkout), or "
            "make a tree of it elsewhere (OUT=…) and cherry-pick; where another "
            "refresh wrote a shared text, a tree without work of yours can be remade",
        )
    if now.sdist != record.sdist:
        raise Refused(
            f"the sdist of {record.version} is another one than the tree was made of",
            hint="make the tree anew, and cherry-pick",
        )


def _drafts(
    record: TreeRecord,
    patches: Sequence[CommitPatch],
    others: Sequence[SeriesDraft],
    release: Release,
    known: Callable[[TreeCommit], KnownPatch | None],
) -> list[DraftPatch]:
    files = _series_files(record, patches)
    drafts = []
    for name, each in zip(files, patches, strict=True):
        was = each.was
        if was is None:
            told = known(each.commit)
            stem = told.stem if told else slug(each.commit.subject)
            shared = equal_text(each.data, stem, others)
            ledger = told.ledger if told else None
            draft = DraftPatch(name, stem, each.data, None, shared, ledger)
        else:
            stem, path = stem_of(was.entry), (release.path / was.entry).resolve()
            same = path.read_bytes() == each.data
            shared = path if same and "/" in was.entry else None
            if not same:
                shared = equal_text(each.data, stem, others)
            draft = DraftPatch(name, stem, each.data, was.entry, shared)
        drafts.append(draft)
    return drafts


def _series_files(record: TreeRecord, patches: Sequence[CommitPatch]) -> list[str]:
    """The series file of each commit: the first until its last known patch."""
    first, *more = SERIES_FILES[record.flavour]
    known = [each.was.series_file if each.was else None for each in patches]
    if not more:
        return [first] * len(patches)
    last = max((i for i, name in enumerate(known) if name == first), default=-1)
    for number in range(last):
        if known[number] not in (None, first):
            raise Refused(
                f"{patches[number].commit} is of {known[number]} and stands before "
                f"{patches[last].commit}, which is of {first}",
                hint=f"git rebase -i pinned, with all of {first} first",
            )
    return [first if number <= last else more[0] for number in range(len(patches))]


def _check(tree: WorkTree, patches: Sequence[Patch]) -> None:
    """Hold the new texts against the tree: each fits, and all come to HEAD's bytes."""
    image = VirtualTree(CommitSource(tree.git, tree.record.base, "the pinned source"))
    head = CommitSource(tree.git, "HEAD", "HEAD")
    paths: set[str] = set()
    for patch in patches:
        step = take_step(patch, image, "exact")
        if not step.fits:
            found = misfit_findings(step.misfits, image)
            said = "\n".join(line for each in found for line in as_text(each))
            raise OwnBug(f"{patch.name}: its own diff does not fit:\n{said}")
        image = step.image
        paths |= set(step.results)
    for path in sorted(paths):
        entry, state = image.read(path), head.read(path)
        planned = (blob_id(entry.state.data), entry.state.mode) if entry else None
        there = (blob_id(state.data), state.mode) if state else None
        if planned != there:
            raise OwnBug(f"{path}: the patches and HEAD come to different bytes")


def _summary(
    tree: WorkTree,
    plan: Plan,
    draft: SeriesDraft,
    patches: Sequence[CommitPatch],
    notes: list[str],
) -> Refresh:
    out = []
    for number, each in enumerate(patches):
        was, entry = each.was, draft.entry_of(number)
        fate: Fate = "added"
        if was is not None:
            same = (draft.release.path / was.entry).read_bytes() == each.data
            fate = (
                "changed" if not same else "renamed" if entry != was.entry else "kept"
            )
        path = draft.path_of(number).resolve()
        name = path.relative_to(releases_module.PROJECT.resolve()).as_posix()
        out.append(
            RefreshedPatch(name, each.commit.id, fate, was.entry if was else None)
        )
        if fate != "kept" and (strays := outside_package(each.patch)):
            notes.append(
                f"{name} touches {', '.join(strays[:3])}: installed trees and images "
                "hold vllm/ alone, and refuse it"
            )
    matched = [each.was for each in patches]
    gone = tuple(each.entry for each in tree.record.patches if each not in matched)
    return Refresh(tree, draft.release, plan, tuple(out), gone, tuple(notes))
