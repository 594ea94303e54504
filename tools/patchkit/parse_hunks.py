"""Reads the hunks of one section. Declared counts rule; then they are proven true."""

from __future__ import annotations

import re

from patchkit.diff_model import ChangeKind, Hunk, HunkLine
from patchkit.form_fault import FormFault

CONTEXT = 3  # lines of context that git diff writes
MARKER = b"\\ No newline at end of file"
_NUMBER = rb"(0|[1-9]\d{0,9})"  # what has more digits numbers no line of any file
_HEADER = re.compile(
    rb"@@ -%b(?:,%b)? \+%b(?:,%b)? @@(?: .*)?" % (4 * (_NUMBER,)), re.DOTALL
)
_BODY = (b" ", b"+", b"-")
_REDO = "export the patch again (git diff --full-index); do not edit hunks by hand"


class HunkReader:
    """Reads ``lines[at:end]``; ``last`` tells whether the patch file ends there."""

    def __init__(self, lines: list[bytes], at: int, end: int, *, last: bool) -> None:
        self._lines = lines
        self._at = at
        self._end = end
        self._last = last
        self.notes: list[FormFault] = []

    def read(self, kind: ChangeKind) -> tuple[Hunk, ...]:
        """Read every hunk up to the section's end. Raises FormFault."""
        hunks: list[Hunk] = []
        ended_at = 0
        while self._at < self._end and self._lines[self._at].startswith(b"@@"):
            if ended_at:
                raise FormFault(
                    ended_at, "H108", "a no-newline marker, and another hunk follows"
                )
            hunk = self._read_hunk()
            hunks.append(hunk)
            ended_at = next((e.line + 1 for e in hunk.lines if not e.newline), 0)
        self.expect_end()
        _check_order(hunks)
        _check_whole_file(hunks, kind)
        _check_new_starts(hunks)
        self._check_context(hunks, kind)
        return tuple(hunks)

    def expect_end(self) -> None:
        """Nothing may follow but, in the file's last section, a mail signature."""
        if self._at >= self._end:
            return
        rest = self._lines[self._at : self._end]
        if self._last and _is_signature(rest):
            return
        line = self._at + 1
        if rest[0].startswith(b"@@@"):
            raise FormFault(line, "F005", "a combined diff's hunk")
        if rest[0].startswith(b"\\"):
            raise FormFault(line, "H108", "a no-newline marker after a whole hunk")
        raise FormFault(
            line,
            "F016",
            "a line that belongs to no header and no hunk",
            "one diff a file, as git diff writes it",
        )

    def _read_hunk(self) -> Hunk:
        start = self._at
        header = self._lines[start]
        if header.startswith(b"@@@"):
            raise FormFault(
                start + 1,
                "F005",
                "a combined diff's hunk",
                "diff against one parent: git diff --full-index HEAD^1 HEAD",
            )
        match = _HEADER.fullmatch(header)
        if match is None:
            raise FormFault(
                start + 1,
                "H101",
                "malformed hunk header; wanted: @@ -start,count +start,count @@",
                _REDO,
            )
        old_start, old_count, new_start, new_count = (
            1 if number is None else int(number) for number in match.groups()
        )
        section = header[header.index(b" @@") + 3 :]
        self._at += 1
        body = self._body(start, old_count, new_count)
        if all(entry.kind == " " for entry in body):
            raise FormFault(
                start + 1, "H110", "the hunk adds and removes nothing", _REDO
            )
        return Hunk(
            start + 1, old_start, old_count, new_start, new_count, section, tuple(body)
        )

    def _body(self, start: int, old_count: int, new_count: int) -> list[HunkLine]:
        body: list[HunkLine] = []
        old = new = 0
        while old < old_count or new < new_count:
            line = self._lines[self._at] if self._at < self._end else None
            if line == b"" and self._continues(old < old_count and new < new_count):
                raise FormFault(
                    self._at + 1,
                    "H109",
                    "an empty line inside a hunk: blank context that lost its space",
                    "an editor stripped trailing white space; " + _REDO,
                )
            if line is not None and line.startswith(b"\\"):
                self._marker(body, old == old_count, new == new_count)
                continue
            if line is None or not line.startswith(_BODY):
                self._too_large(start, (old_count, new_count), (old, new))
            assert line is not None
            mark = line[:1]
            old += mark != b"+"
            new += mark != b"-"
            if old > old_count or new > new_count:
                self._too_small(start, (old_count, new_count))
            kind = " " if mark == b" " else "+" if mark == b"+" else "-"
            body.append(HunkLine(kind, line[1:], self._at + 1))  # type: ignore[arg-type]
            self._at += 1
        if self._at < self._end and self._lines[self._at].startswith(b"\\"):
            self._marker(body, True, True)
        self._nothing_left(start, (old_count, new_count))
        return body

    def _continues(self, wanted: bool) -> bool:
        """Whether more of a body follows an empty line, rather than the file's end."""
        rest = self._lines[self._at : self._end]
        return wanted and any(line.startswith((*_BODY, b"@@")) for line in rest)

    def _marker(self, body: list[HunkLine], old_done: bool, new_done: bool) -> None:
        number = self._at + 1
        line = self._lines[self._at]
        if line != MARKER:
            raise FormFault(number, "H108", f"wanted: {MARKER.decode()}", _REDO)
        if not body or not body[-1].newline:
            raise FormFault(number, "H108", "a no-newline marker after no line", _REDO)
        side = body[-1].kind
        if (side != "+" and not old_done) or (side != "-" and not new_done):
            raise FormFault(
                number,
                "H108",
                "a no-newline marker after a line that is not the last of its side",
                _REDO,
            )
        last = body[-1]
        body[-1] = HunkLine(last.kind, last.text, last.line, newline=False)
        self._at += 1

    def _nothing_left(self, start: int, declared: tuple[int, int]) -> None:
        """After a whole hunk no further body line may stand."""
        if self._at >= self._end:
            return
        line = self._lines[self._at]
        signature = self._last and _is_signature(self._lines[self._at : self._end])
        if line.startswith(_BODY) and not signature:
            self._too_small(start, declared)

    def _count_body(self, start: int) -> tuple[int, int]:
        """Lines of each side that stand below the header, whatever it declares."""
        old = new = 0
        for at in range(start + 1, self._end):
            line = self._lines[at]
            if line.startswith(b"\\"):
                continue
            if not line.startswith(_BODY):
                break
            if self._last and _is_signature(self._lines[at : self._end]):
                break
            old += not line.startswith(b"+")
            new += not line.startswith(b"-")
        return old, new

    def _too_small(self, start: int, declared: tuple[int, int]) -> None:
        counted = self._count_body(start)
        raise FormFault(
            start + 1,
            "H103",
            f"declared -{declared[0]} +{declared[1]} lines, counted -{counted[0]} "
            f"+{counted[1]}; the surplus from line {self._at + 1} on would be lost",
            _REDO,
        )

    def _too_large(
        self, start: int, declared: tuple[int, int], counted: tuple[int, int]
    ) -> None:
        missing = (declared[0] - counted[0], declared[1] - counted[1])
        hint = _REDO
        if missing[0] == missing[1] and missing[0] <= CONTEXT:
            hint = (
                f"were {missing[0]} blank context lines stripped from the end? {_REDO}"
            )
        raise FormFault(
            start + 1,
            "H102",
            f"declared -{declared[0]} +{declared[1]} lines, counted -{counted[0]} "
            f"+{counted[1]} up to line {self._at}",
            hint,
        )

    def _check_context(self, hunks: list[Hunk], kind: ChangeKind) -> None:
        if kind in ("create", "delete"):
            return
        for index, hunk in enumerate(hunks):
            old = first_line(hunk.old_start, hunk.old_count)
            lead = _lead(hunk)
            trail = _lead(hunk, backwards=True)
            follows = index + 1 < len(hunks)
            none = all(entry.kind != " " for entry in hunk.lines)
            if none and (old > 1 or follows):
                raise FormFault(
                    hunk.line,
                    "H104",
                    "no context lines: the hunk would land on any line of this number",
                    "write it with three lines of context: git diff -U3 --full-index",
                )
            if lead < min(CONTEXT, old - 1) or (follows and trail < CONTEXT):
                self.notes.append(
                    FormFault(
                        hunk.line,
                        "H105",
                        f"{lead} lines of context above and {trail} below the change; "
                        f"git diff writes {CONTEXT}",
                        "write it with: git diff -U3 --full-index",
                        "warning",
                    )
                )


def _check_order(hunks: list[Hunk]) -> None:
    end = 0
    for hunk in hunks:
        for start, count in (
            (hunk.old_start, hunk.old_count),
            (hunk.new_start, hunk.new_count),
        ):
            if count and not start:
                raise FormFault(
                    hunk.line, "H101", "line 0 of a side that has lines", _REDO
                )
        old = first_line(hunk.old_start, hunk.old_count)
        if old < end:
            raise FormFault(
                hunk.line,
                "H106",
                f"starts at old line {old}, before the hunk above ends ({end - 1})",
                _REDO,
            )
        end = old + hunk.old_count


def _check_new_starts(hunks: list[Hunk]) -> None:
    """A hunk's new start is its old one, shifted by what the hunks above add."""
    shift = 0
    for hunk in hunks:
        wanted = first_line(hunk.old_start, hunk.old_count) + shift
        if first_line(hunk.new_start, hunk.new_count) != wanted:
            raise FormFault(
                hunk.line,
                "H107",
                f"new start {hunk.new_start}; from the old start and the hunks above "
                f"it is {wanted - (hunk.new_count == 0)}",
                _REDO,
            )
        shift += hunk.new_count - hunk.old_count


def first_line(start: int, count: int) -> int:
    """The line a side begins at: with no lines, its start names the line above."""
    return start if count else start + 1


def _lead(hunk: Hunk, *, backwards: bool = False) -> int:
    lines = reversed(hunk.lines) if backwards else iter(hunk.lines)
    count = 0
    for entry in lines:
        if entry.kind != " ":
            break
        count += 1
    return count


def _check_whole_file(hunks: list[Hunk], kind: ChangeKind) -> None:
    """A created file's hunk is ``-0,0``, a deleted one's ``+0,0``, and the only one."""
    if kind not in ("create", "delete") or not hunks:
        return
    hunk = hunks[0]
    absent = (
        (hunk.old_start, hunk.old_count, hunk.new_start)
        if kind == "create"
        else (hunk.new_start, hunk.new_count, hunk.old_start)
    )
    if len(hunks) > 1 or absent != (0, 0, 1):
        raise FormFault(
            hunks[-1].line,
            "H111",
            f"a {kind}d file has one hunk, "
            + ("@@ -0,0 +1,n @@" if kind == "create" else "@@ -1,n +0,0 @@"),
            _REDO,
        )


def _is_signature(rest: list[bytes]) -> bool:
    """The end of ``git format-patch`` mail: ``-- ``, the version, blank lines."""
    return (
        rest[0] == b"-- "
        and len(rest) >= 2
        and re.fullmatch(rb"[0-9][\w.() -]{0,60}", rest[1]) is not None
        and not any(rest[2:])
    )
