"""unidiff's reading of an accepted diff, compared line by line with the strict one.

unidiff is the independent reader: a patch on which the two differ is refused, since
one of them would see other changes than the other.
"""

from __future__ import annotations

import io

from patchkit.diff_model import FileChange, Patch
from patchkit.findings import Finding


def compare_with_unidiff(patch: Patch) -> list[Finding]:
    """Findings F021 where unidiff sees other hunks or lines; an empty list if none.

    The bytes are decoded as Latin-1, one character a byte, and split at ``\\n`` only.
    Sections without hunks are left out: unidiff does not report all of their kinds.
    """
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    text = patch.data.decode("latin-1")
    try:
        read = PatchSet(io.StringIO(text, newline="\n"))
    except UnidiffParseError as error:
        return [_differs(patch, 0, f"unidiff cannot read it: {error}")]
    theirs = [section for section in read if len(section)]
    ours = [change for change in patch.files if change.hunks]
    if len(theirs) != len(ours):
        return [
            _differs(patch, 0, f"unidiff sees {len(theirs)} files, not {len(ours)}")
        ]
    for section, change in zip(theirs, ours, strict=True):
        if _lines_of(section) != _our_lines(change):
            return [_differs(patch, change.line, "unidiff sees other hunks here")]
    return []


_Reading = list[tuple[tuple[int, int, int, int], list[tuple[str, str]]]]


def _lines_of(section: object) -> _Reading:
    return [
        (
            (
                hunk.source_start,
                hunk.source_length,
                hunk.target_start,
                hunk.target_length,
            ),
            [
                (line.line_type, line.value.rstrip("\n"))
                for line in hunk
                if line.line_type != "\\"
            ],
        )
        for hunk in section  # type: ignore[attr-defined]
    ]


def _our_lines(change: FileChange) -> _Reading:
    return [
        (
            (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count),
            [(entry.kind, entry.text.decode("latin-1")) for entry in hunk.lines],
        )
        for hunk in change.hunks
    ]


def _differs(patch: Patch, line: int, message: str) -> Finding:
    return Finding(
        patch.name, line, "F021", message, hint="report this patch as a bug of the kit"
    )
