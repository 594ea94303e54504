"""Patches given together that contradict each other, whatever the tree holds."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.diff_model import FileChange, Patch
from patchkit.findings import Finding
from patchkit.reverse import reverse_patch


def check_together(patches: Sequence[Patch]) -> list[Finding]:
    """Findings for patches that stand twice, or of which one takes back another.

    Of such a pair no tree could tell whether it is before or after both.
    """
    findings = []
    for number, patch in enumerate(patches):
        for earlier in patches[:number]:
            if said := _contradiction(earlier, patch):
                message, hint = said
                line = patch.files[0].line
                findings.append(Finding(patch.name, line, "T234", message, hint=hint))
                break
    return findings


def _contradiction(earlier: Patch, patch: Patch) -> tuple[str, str] | None:
    if patch.name == earlier.name:
        return "the patch is given twice", "name it once"
    if _same(earlier, patch):
        return (
            f"the same change as {earlier.name}; a patch is put on once",
            "leave one of the two out",
        )
    if _same(reverse_patch(earlier), patch):
        return (
            f"takes back what {earlier.name} does: the two change nothing",
            f"leave both out; to take {earlier.name} off a tree: --revert",
        )
    return None


def _same(one: Patch, other: Patch) -> bool:
    ours, theirs = _by_paths(one), _by_paths(other)
    return ours.keys() == theirs.keys() and all(
        _same_change(change, theirs[paths]) for paths, change in ours.items()
    )


def _by_paths(patch: Patch) -> dict[tuple[str | None, str | None], FileChange]:
    return {(change.old_path, change.new_path): change for change in patch.files}


def _same_change(one: FileChange, other: FileChange) -> bool:
    for ours, theirs in (
        (one.old_mode, other.old_mode),
        (one.new_mode, other.new_mode),
    ):
        if ours != theirs and None not in (ours, theirs):
            return False
    # One more equal line among equal ones is the same hunk, and another change.
    if not agree(one.old_blob, other.old_blob) or not agree(
        one.new_blob, other.new_blob
    ):
        return False
    # Git may word a change otherwise on its way back: where ids are known they tell.
    return all(change.old_blob or change.new_blob for change in (one, other)) or _hunks(
        one
    ) == _hunks(other)


def _hunks(change: FileChange) -> list[object]:
    return [
        (
            (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count),
            [(line.kind, line.data) for line in hunk.lines],
        )
        for hunk in change.hunks
    ]


def agree(one: str | None, other: str | None) -> bool:
    """Whether two ids, shortened or not stated at all, may name one content."""
    if one is None or other is None:
        return True
    return one.startswith(other) or other.startswith(one)
