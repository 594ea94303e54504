"""A patch turned around: what takes its result back to where it began."""

from __future__ import annotations

from dataclasses import replace

from patchkit.diff_model import ChangeKind, FileChange, Hunk, HunkLine, LineKind, Patch

_LINE: dict[LineKind, LineKind] = {" ": " ", "+": "-", "-": "+"}
_KIND: dict[ChangeKind, ChangeKind] = {"create": "delete", "delete": "create"}


def reverse_patch(patch: Patch) -> Patch:
    """Return ``patch`` with its sides swapped and its sections in reverse order.

    Line numbers of the patch file stay, so that findings point into it. A reversed
    copy keeps the kind "copy" and has no new path: its file goes away, and only
    copying again can prove that nothing else was in it.
    """
    return replace(
        patch, files=tuple(reverse_change(change) for change in reversed(patch.files))
    )


def reverse_change(change: FileChange) -> FileChange:
    """Return one section with its sides swapped; see ``reverse_patch``."""
    if change.kind == "copy":
        return replace(
            change,
            old_path=change.new_path,
            new_path=None,
            old_mode=change.new_mode,
            new_mode=None,
            old_blob=change.new_blob,
            new_blob=None,
            hunks=(),
        )
    return replace(
        change,
        kind=_KIND.get(change.kind, change.kind),
        old_path=change.new_path,
        new_path=change.old_path,
        old_mode=change.new_mode,
        new_mode=change.old_mode,
        old_blob=change.new_blob,
        new_blob=change.old_blob,
        hunks=tuple(_reverse_hunk(hunk) for hunk in change.hunks),
    )


def _reverse_hunk(hunk: Hunk) -> Hunk:
    return replace(
        hunk,
        old_start=hunk.new_start,
        old_count=hunk.new_count,
        new_start=hunk.old_start,
        new_count=hunk.old_count,
        lines=_removals_first(hunk.lines),
    )


def _removals_first(lines: tuple[HunkLine, ...]) -> tuple[HunkLine, ...]:
    """Swap the kinds and keep git's order: of one change, what goes comes first."""
    out: list[HunkLine] = []
    added: list[HunkLine] = []
    for line in lines:
        swapped = replace(line, kind=_LINE[line.kind])
        if swapped.kind == "+":
            added.append(swapped)
            continue
        if swapped.kind == " ":
            out.extend(added)
            added = []
        out.append(swapped)
    return (*out, *added)
