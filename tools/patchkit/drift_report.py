"""A series' drift in words and in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from patchkit.hunk_fit import FIT_WORDS
from patchkit.series_drift import HunkFit, PatchFit, SeriesDrift, UpstreamChange
from patchkit.side_by_side import table, visible

_LINES_OF_A_CHANGE = 12


def drift_text(drift: SeriesDrift) -> str:
    """The report for a person: what fits in a line, what does not with its reason."""
    rows = [f"{drift.source} -> {drift.target}"]
    for patch in drift.patches:
        rows.append("")
        rows.append(f"{patch.name}: {_verdict(patch)}")
        path = ""
        for hunk in patch.hunks:
            if hunk.path != path:
                path = hunk.path
                rows.append(f"  {path}")
            rows += _hunk_rows(hunk)
    rows += ["", counts_line(drift)]
    return "\n".join(rows)


def counts_line(drift: SeriesDrift) -> str:
    """``16 hunks: 7 exact, 4 moved …``; kinds that none has are left out."""
    total = sum(drift.counts.values())
    kinds = [f"{count} {kind}" for kind, count in drift.counts.items() if count]
    return f"{total} hunks: {', '.join(kinds) or 'none'}"


def _verdict(patch: PatchFit) -> str:
    if patch.as_it_is:
        return "fits as it is"
    if patch.kind == "exact":
        return "exact, but the file differs elsewhere: its index lines need new ids"
    return patch.kind


def _hunk_rows(hunk: HunkFit) -> Iterator[str]:
    at = f"line {hunk.line}"
    header = hunk.hunk
    if header is not None:
        at += f", @@ -{header.old_start},{header.old_count}"
    words = FIT_WORDS[hunk.kind]
    if hunk.kind == "moved":
        assert header is not None
        words = f"by {hunk.offset:+d}, to line {header.old_start + hunk.offset}"
    if hunk.kind == "renamed":
        words = f"to {hunk.to_path}, and there it is {hunk.inner}"
    yield f"    {hunk.kind:9} {at}: {words}"
    if hunk.note:
        yield f"              {hunk.note}"
    if hunk.kind in ("exact", "moved", "gone"):
        return
    for row in table(hunk.expected[1], hunk.expected[0], hunk.found[1], hunk.found[0]):
        yield f"      {row}"
    for cause in hunk.causes:
        yield from _cause_rows(cause)
    if hunk.rests_on:
        yield f"      it rests on {hunk.rests_on}, which does not fit"


def _cause_rows(cause: UpstreamChange) -> Iterator[str]:
    yield (
        f"      upstream changed {cause.path}, line {cause.from_line} "
        f"(now {cause.to_line}):"
    )
    yield from _lines("-", cause.removed)
    yield from _lines("+", cause.added)


def _lines(mark: str, lines: Sequence[bytes]) -> Iterator[str]:
    for line in lines[:_LINES_OF_A_CHANGE]:
        yield f"        {mark}{visible(line)}"
    if len(lines) > _LINES_OF_A_CHANGE:
        yield f"        {mark}… {len(lines) - _LINES_OF_A_CHANGE} more lines"


def drift_json(drift: SeriesDrift) -> dict[str, Any]:
    """The report for a machine. Lines count from 1; bytes that are no UTF-8 escape."""
    return {
        "from": drift.source,
        "to": drift.target,
        "counts": drift.counts,
        "patches": [
            {
                "name": patch.name,
                "subject": patch.subject,
                "fit": patch.kind,
                "as_it_is": patch.as_it_is,
                "hunks": [_hunk_json(hunk) for hunk in patch.hunks],
            }
            for patch in drift.patches
        ],
    }


def _hunk_json(hunk: HunkFit) -> dict[str, Any]:
    return {
        "path": hunk.path,
        "to_path": hunk.to_path,
        "line": hunk.line,
        "old_start": hunk.hunk.old_start if hunk.hunk else None,
        "fit": hunk.kind,
        "offset": hunk.offset,
        "fit_at_new_name": hunk.inner,
        "merges": hunk.merges,
        "note": hunk.note,
        "rests_on": hunk.rests_on or None,
        "expected": _side(hunk.expected),
        "found": _side(hunk.found),
        "upstream_changes": [
            {
                "path": cause.path,
                "from_line": cause.from_line,
                "removed": _texts(cause.removed),
                "to_line": cause.to_line,
                "added": _texts(cause.added),
            }
            for cause in hunk.causes
        ],
    }


def _side(side: tuple[int, tuple[bytes, ...]]) -> dict[str, Any]:
    return {"line": side[0], "lines": _texts(side[1])}


def _texts(lines: Sequence[bytes]) -> list[str]:
    return [line.decode("utf-8", "backslashreplace") for line in lines]
