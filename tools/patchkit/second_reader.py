"""unidiff's reading of an accepted diff, compared line by line with the strict one.

unidiff is the independent reader. A diff on which the two differ is not judged at all:
one of them would see other changes than the other, and that is a bug to report.
"""

from __future__ import annotations

import io

from patchkit.diff_model import FileChange, Patch
from patchkit.errors import OwnBug


def compare_with_unidiff(patch: Patch) -> None:
    """Raise OwnBug where unidiff sees other hunks or lines.

    It gets the hunks of each section, as bytes, below names of our own: how it reads
    names and prose is its affair, and names with blanks it cannot read. The bytes are
    decoded as Latin-1, one character a byte, and split at ``\\n`` only.
    """
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    lines = patch.data.split(b"\n")
    text = "".join(_hunk_text(lines, change) for change in patch.files)
    try:
        read = PatchSet(io.StringIO(text, newline="\n"))
    except UnidiffParseError as error:
        raise _differs(patch, f"it cannot: {error}") from None
    theirs = [section for section in read if len(section)]
    ours = [change for change in patch.files if change.hunks]
    if len(theirs) != len(ours):
        raise _differs(patch, f"{len(theirs)} files, not {len(ours)}")
    for section, change in zip(theirs, ours, strict=True):
        if _lines_of(section) != _our_lines(change):
            raise _differs(patch, f"other hunks in the section at line {change.line}")


def _hunk_text(lines: list[bytes], change: FileChange) -> str:
    if not change.hunks:
        return ""
    last = change.hunks[-1].lines[-1]
    end = last.line if last.newline else last.line + 1
    body = b"\n".join(lines[change.hunks[0].line - 1 : end])
    return f"--- a/file\n+++ b/file\n{body.decode('latin-1')}\n"


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


def _differs(patch: Patch, how: str) -> OwnBug:
    return OwnBug(
        f"{patch.name}: unidiff reads it differently: {how}",
        hint="please report this patch; nothing was changed",
    )
