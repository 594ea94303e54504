"""Misfits put into words: what the patch expects, what the tree has, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from patchkit.diff_model import Hunk
from patchkit.file_state import Finder, Source
from patchkit.findings import Finding
from patchkit.line_index import LineIndex, Norm
from patchkit.side_by_side import table
from patchkit.step import Misfit, place
from patchkit.virtual_tree import VirtualTree

_REMAKE = "make the patch again on this tree; a hunk is never edited by hand"
_Lines = Sequence[bytes]


def findings(misfits: Sequence[Misfit], image: VirtualTree) -> list[Finding]:
    """Return a finding for each misfit, in their order."""
    return [_finding(misfit, image.source) for misfit in misfits]


def _finding(misfit: Misfit, source: Source) -> Finding:
    if misfit.kind == "missing":
        return _missing(misfit, source)
    return _SAY[misfit.kind](misfit)


def _make(
    misfit: Misfit,
    code: str,
    message: str,
    *,
    line: int = 0,
    hint: str = "",
    detail: Sequence[str] = (),
) -> Finding:
    return Finding(
        misfit.patch.name,
        line or (misfit.hunk.line if misfit.hunk else misfit.change.line),
        code,
        f"{misfit.path}: {message}",
        "error" if misfit.fatal else "warning",
        hint,
        tuple(detail),
    )


def _missing(misfit: Misfit, source: Source) -> Finding:
    name = misfit.path.rpartition("/")[2]
    others = source.find_name(name, misfit.path) if isinstance(source, Finder) else ()
    hint = f"a file of that name is at {', '.join(others[:3])}" if others else ""
    return _make(misfit, "T201", "there is no such file", hint=hint)


def _exists(misfit: Misfit) -> Finding:
    there, wanted = misfit.entry, misfit.wanted
    assert there is not None
    if wanted is None:
        return _make(misfit, "T202", "another section of the patch makes it already")
    if there.state == wanted:
        return _make(
            misfit, "T202", "to be created, and there already with the very same bytes"
        )
    if there.state.data == wanted.data:
        return _modes(misfit, wanted.mode, there.state.mode)
    size = len(there.lines)
    message = f"to be created, and there already with other content ({size} lines)"
    new = [line for hunk in misfit.change.hunks for line in hunk.new_lines]
    return _make(misfit, "T202", message, detail=table(new, 1, there.lines, 1)[:40])


def _unsafe(misfit: Misfit) -> Finding:
    error = misfit.error
    assert error is not None
    if error.reason == "symlink":
        return _make(
            misfit,
            "T203",
            f"{error.component} is a symbolic link; nothing is written through one",
            hint="give the folder that really holds the files as the root",
        )
    hint = ""
    if any(_lies_at(each.old_path, error.component) for each in misfit.patch.files):
        # Git does it in one go; a write that can be undone at every moment does not.
        hint = (
            f"the patch removes what lies at {error.component}: put the removal into a "
            "patch of its own and apply that first, by itself"
        )
    return _make(misfit, "T204", str(error).partition(": ")[2], hint=hint)


def _lies_at(path: str | None, place: str) -> bool:
    return path is not None and f"{path}/".startswith(f"{place}/")


def _mode(misfit: Misfit) -> Finding:
    assert misfit.entry is not None
    stated = misfit.change.old_mode or misfit.change.new_mode
    return _modes(misfit, stated or 0, misfit.entry.state.mode)


def _modes(misfit: Misfit, stated: int, found: int) -> Finding:
    return _make(misfit, "T205", f"mode is {found:o}, the patch states {stated:o}")


def _not_at_end(misfit: Misfit) -> Finding:
    assert misfit.hunk is not None
    assert misfit.entry is not None
    end = place(misfit.hunk)[1]
    more = len(misfit.entry.lines) - end
    return _make(
        misfit,
        "T217",
        f"hunk {_at(misfit.hunk)} has nothing after its last change, so it must end "
        f"the file; {more} more lines follow line {end}",
        hint="write it with three lines of context (git diff -U3)",
    )


def _leftover(misfit: Misfit) -> Finding:
    assert misfit.entry is not None
    old = [line for hunk in misfit.change.hunks for line in hunk.old_lines]
    lines = misfit.entry.lines
    return _make(
        misfit,
        "T218",
        f"to be deleted, and it holds {len(lines)} lines where the patch removes "
        f"{len(old)}",
        hint="upstream extended the file; see what it is for before deleting it",
        detail=[f"found only: {row}" for row in _some(lines[len(old) :])],
    )


def _short_context(misfit: Misfit) -> Finding:
    assert misfit.hunk is not None
    return _make(
        misfit,
        "T219",
        f"hunk {_at(misfit.hunk)} has fewer than three lines of context",
        hint="write it with three lines of context (git diff -U3)",
    )


def _old_id(misfit: Misfit) -> Finding:
    assert misfit.entry is not None
    stated = misfit.change.old_blob or ""
    found = misfit.entry.id_like(stated)
    message = f"the file is {found[:12]}, the index line says {stated[:12]}"
    if misfit.fatal:
        return _make(misfit, "T220", message, hint="policy context accepts it")
    message += "; it differs elsewhere than where the hunks stand"
    return _make(misfit, "T220", message)


def _new_id(misfit: Misfit) -> Finding:
    assert misfit.entry is not None
    stated = misfit.change.new_blob or ""
    made = misfit.entry.id_like(stated)
    return _make(
        misfit,
        "T221",
        f"the file after would be {made[:12]}, the index line promises {stated[:12]}",
        hint="the diff was changed after it was written: make it again",
    )


def _no_id(misfit: Misfit) -> Finding:
    return _make(
        misfit,
        "T222",
        "no blob ids to hold the file against, as policy exact asks",
        hint="write it with git diff --full-index, or use policy context",
    )


def _hunk(misfit: Misfit) -> Finding:
    hunk = misfit.hunk
    assert hunk is not None
    lines = misfit.entry.index if misfit.entry else LineIndex(())
    old = hunk.old_lines
    begin = place(hunk)[0]
    places = lines.find(old) if old else []
    had = _upstream(hunk, lines, places)
    if had is not None:
        message = f"upstream already has this hunk at line {had}"
        return _make(misfit, "T216", message, hint="leave the hunk out; compare first")
    if len(places) == 1:
        moved = places[0] - begin
        message = (
            f"hunk {_at(hunk)}: its lines stand at line {places[0] + 1}, not at "
            f"{hunk.old_start} (moved by {moved:+d})"
        )
        return _make(misfit, "T210", message, hint=_REMAKE)
    if places:
        where = ", ".join(str(start + 1) for start in places[:8])
        where += ", …" if len(places) > 8 else ""
        message = (
            f"hunk {_at(hunk)}: its lines are not at line {hunk.old_start} and stand "
            f"at {len(places)} places: lines {where}"
        )
        return _make(misfit, "T211", message, hint=_REMAKE)
    for code, words, norm in _NEARLY:
        start = _nearly(old, lines, begin, norm)
        if start is not None:
            return _differing(misfit, start, code, words)
    block = _upstream_block(hunk, lines)
    if block is not None:
        message = (
            f"upstream already has the lines of hunk {_at(hunk)} at line {block}, in "
            "other surroundings"
        )
        return _make(misfit, "T216", message, hint="leave the hunk out; compare first")
    start = _nearest(old, lines, begin)
    words = "differs from what the hunk expects"
    return _differing(misfit, start, "T212", words)


def _differing(misfit: Misfit, start: int, code: str, words: str) -> Finding:
    """A finding at the first old line that is not the tree's, with the table."""
    hunk, lines = misfit.hunk, misfit.entry.lines if misfit.entry else ()
    assert hunk is not None
    old = [line for line in hunk.lines if line.kind != "+"]
    first = next(
        (
            number
            for number, line in enumerate(old)
            if start + number >= len(lines) or lines[start + number] != line.data
        ),
        0,
    )
    # Lines of upstream's own in between must not push the rest out of sight.
    window = lines[max(start, 0) : start + len(old) + 8]
    number = start + first + 1
    if number > len(lines):
        message = f"hunk {_at(hunk)}: the file ends after line {len(lines)}"
    else:
        message = f"hunk {_at(hunk)}: line {number} {words}"
    if start != place(hunk)[0]:
        message += f" (nearest place: line {start + 1}, not {hunk.old_start})"
    return _make(
        misfit,
        code,
        message,
        line=old[first].line if old else hunk.line,
        hint=_HINTS.get(code, _REMAKE),
        detail=table(
            [line.data for line in old], hunk.old_start, window, max(start, 0) + 1
        ),
    )


_HINTS = {
    "T213": "the patch passed through an editor or a mail that changed blanks",
    "T214": "one of the two was checked out with core.autocrlf; keep LF in both",
    "T215": r"compare with the patch's '\ No newline at end of file' lines",
}


def _upstream(hunk: Hunk, lines: LineIndex, places: Sequence[int]) -> int | None:
    """The line of the first added line, if the whole new side stands somewhere.

    Not where the old side stands apart from it: then that is a look-alike.
    """
    new = hunk.new_lines
    added = [line.text for line in hunk.lines if line.kind == "+"]
    if _letters(added) < 3:
        return None
    found = lines.find(new)
    if not found:
        return None
    if any(not found[0] <= start < found[0] + len(new) for start in places):
        return None
    kinds = [line.kind for line in hunk.lines if line.kind != "-"]
    return found[0] + kinds.index("+") + 1


def _upstream_block(hunk: Hunk, lines: LineIndex) -> int | None:
    """The line at which all added lines stand in one piece, if they tell enough."""
    runs: list[list[bytes]] = [[]]
    for line in hunk.lines:
        if line.kind == "+":
            runs[-1].append(line.data)
        elif runs[-1]:
            runs.append([])
    run = max(runs, key=_letters)
    if len([line for line in run if _letters([line])]) < 2 or _letters(run) < 24:
        return None
    found = lines.find(run)
    return found[0] + 1 if len(found) == 1 else None


def _letters(lines: _Lines) -> int:
    return sum(byte > 127 or chr(byte).isalnum() for line in lines for byte in line)


def _nearly(old: _Lines, lines: LineIndex, begin: int, norm: Norm) -> int | None:
    """Where ``old`` stands but for what ``norm`` takes away: declared place first."""
    if not old:
        return None
    wanted = [norm(line) for line in old]
    if not any(wanted):
        return None
    found = lines.like(norm).find(wanted)
    if not found:
        return None
    return min(found, key=lambda start: abs(start - begin))


def _nearest(old: _Lines, lines: LineIndex, begin: int) -> int:
    """The start at which most lines agree; the declared one unless half do."""
    votes: Counter[int] = Counter()
    telling = 0
    for number, line in enumerate(old):
        if _letters([line]):
            telling += 1
            spots = lines.spots(line)
            if len(spots) <= 50:
                votes.update(spot - number for spot in spots)
    if not votes:
        return begin
    best = max(votes, key=lambda start: (votes[start], -abs(start - begin)))
    return best if best >= 0 and votes[best] * 2 >= telling else begin


def _at(hunk: Hunk) -> str:
    return f"@@ -{hunk.old_start},{hunk.old_count} +{hunk.new_start},{hunk.new_count}"


def _some(lines: _Lines) -> list[str]:
    return [line.decode("utf-8", "backslashreplace").rstrip() for line in lines[:5]]


_NEARLY: tuple[tuple[str, str, Norm], ...] = (
    (
        "T214",
        "differs in its line end (CRLF or LF)",
        lambda line: line.replace(b"\r\n", b"\n").removesuffix(b"\r"),
    ),
    (
        "T215",
        "differs in the newline at the end of the file",
        lambda line: line.removesuffix(b"\n"),
    ),
    (
        "T213",
        "differs in white space only (tabs, blanks)",
        lambda line: b"".join(line.split()),
    ),
)

_SAY: dict[str, Callable[[Misfit], Finding]] = {
    "hunk": _hunk,
    "exists": _exists,
    "unsafe": _unsafe,
    "mode": _mode,
    "not-at-end": _not_at_end,
    "leftover": _leftover,
    "short-context": _short_context,
    "old-id": _old_id,
    "new-id": _new_id,
    "no-id": _no_id,
}
