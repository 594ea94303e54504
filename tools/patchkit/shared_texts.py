"""Releases that share texts of a refreshed one: what they follow, what they keep."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit import releases as releases_module
from patchkit.parse import parse_patch
from patchkit.releases import Releases, Sdist
from patchkit.series_draft import (
    DraftPatch,
    SeriesDraft,
    all_series_files,
    equal_text,
    read_draft,
)
from patchkit.source_store import CommitSource, open_store, store_source
from patchkit.step import take_step
from patchkit.virtual_tree import VirtualTree


def follow_references(
    old: SeriesDraft,
    new: SeriesDraft,
    others: Sequence[SeriesDraft],
    notes: list[str],
    *,
    offline: bool,
) -> list[SeriesDraft]:
    """Drafts of the releases that share texts of the refreshed one.

    A changed text reaches those that it fits; the others get the old one as theirs,
    one copy for all of them.
    """
    # A text that the refreshed release itself shares stays where it is.
    old_paths = {
        old.path_of(number).resolve()
        for number, patch in enumerate(old.patches)
        if patch.shared is None
    }
    moved: dict[Path, tuple[Path, bytes]] = {}
    for number, patch in enumerate(new.patches):
        if patch.shared is None and patch.before is not None:
            was = (old.release.path / patch.before).resolve()
            moved[was] = (new.path_of(number).resolve(), patch.data)
    drafts: list[SeriesDraft] = []
    for other in others:
        patches = list(other.patches)
        for number, patch in enumerate(patches):
            if patch.shared is None or patch.shared.resolve() not in old_paths:
                continue
            to = moved.get(patch.shared.resolve())
            if to is None:
                patches[number] = _old_text(patch, drafts)
            else:
                patches[number] = replace(patch, shared=to[0], data=to[1])
        if patches == list(other.patches):
            continue
        patches = _as_far_as_it_fits(other, patches, drafts, notes, offline=offline)
        drafts.append(SeriesDraft(other.release, tuple(patches)))
    return drafts


def _as_far_as_it_fits(
    other: SeriesDraft,
    patches: list[DraftPatch],
    drafts: Sequence[SeriesDraft],
    notes: list[str],
    *,
    offline: bool,
) -> list[DraftPatch]:
    """``patches`` with the new texts that fit, in the order of the series."""
    changed = [i for i, p in enumerate(patches) if p.data != other.patches[i].data]
    if changed and not fits_release(other.release.sdist, patches, offline=offline):
        news = {number: patches[number] for number in changed}
        for number in changed:
            patches[number] = _old_text(other.patches[number], drafts)
        for number in tuple(changed):
            trial = [*patches[:number], news[number], *patches[number + 1 :]]
            if fits_release(other.release.sdist, trial, offline=offline):
                patches = trial
                continue
            changed.remove(number)
            notes.append(
                f"{other.release.name} keeps the old text of {patches[number].stem} as "
                "its own: the new one does not fit it"
            )
    if changed:
        stems = ", ".join(patches[number].stem for number in changed)
        notes.append(f"{other.release.name} shares the new text of {stems}")
    return patches


def _old_text(patch: DraftPatch, drafts: Sequence[SeriesDraft]) -> DraftPatch:
    return replace(patch, shared=equal_text(patch.data, patch.stem, drafts))


def releases_of_files(releases: Releases, paths: Collection[str]) -> list[str]:
    """Names of the releases that one of some files belongs to.

    ``paths`` are relative to the project. A series file and a ledger belong to the
    release of their folder, a patch to every release that refers to it.
    """
    project = releases_module.PROJECT
    wanted = {(project / path).resolve() for path in paths}
    names = []
    for release in releases.release.values():
        if not release.path.is_dir():
            continue
        draft = read_draft(release)
        files = {
            draft.path_of(number).resolve() for number in range(len(draft.patches))
        }
        files |= {(release.path / name).resolve() for name in all_series_files(release)}
        if files & wanted:
            names.append(release.name)
    return names


def fits_release(
    sdists: Sequence[Sdist], patches: Sequence[DraftPatch], *, offline: bool = False
) -> bool:
    """Whether a series applies exactly to each of some pinned sources."""
    parsed = [parse_patch(patch.data, patch.stem).patch for patch in patches]
    for sdist in sdists:
        commit = store_source(sdist, offline=offline)
        image = VirtualTree(CommitSource(open_store(), commit, sdist.file))
        for patch in parsed:
            step = take_step(patch, image, "exact") if patch else None
            if step is None or not step.fits:
                return False
            image = step.image
    return True
