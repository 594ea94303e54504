"""Releases that share texts of a refreshed one: what they follow, what they keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.parse import parse_patch
from patchkit.releases import Sdist
from patchkit.series_draft import DraftPatch, SeriesDraft, own_copy
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

    A changed text reaches those that it fits; the others get the old one as theirs.
    """
    old_paths = [old.path_of(number).resolve() for number in range(len(old.patches))]
    moved: dict[Path, tuple[Path, bytes]] = {}
    for number, patch in enumerate(new.patches):
        if patch.shared is None and patch.before is not None:
            was = (old.release.path / patch.before).resolve()
            moved[was] = (new.path_of(number).resolve(), patch.data)
    drafts = []
    for other in others:
        patches = list(other.patches)
        for number, patch in enumerate(patches):
            if patch.shared is None or patch.shared.resolve() not in old_paths:
                continue
            to = moved.get(patch.shared.resolve())
            if to is None:
                patches[number] = own_copy(patch)
            else:
                patches[number] = replace(patch, shared=to[0], data=to[1])
        if patches == list(other.patches):
            continue
        changed = [i for i, p in enumerate(patches) if p.data != other.patches[i].data]
        if changed and not fits_release(other.release.sdist, patches, offline=offline):
            for number in changed:
                patches[number] = own_copy(other.patches[number])
                notes.append(
                    f"{other.release.name} keeps the old text of "
                    f"{patches[number].stem} as its own: the new one does not fit it"
                )
        elif changed:
            stems = ", ".join(patches[number].stem for number in changed)
            notes.append(f"{other.release.name} shares the new text of {stems}")
        drafts.append(SeriesDraft(other.release, tuple(patches)))
    return drafts


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
