"""Two runs of lines beside each other, every byte of them visible, in 96 columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher

TEXT_WIDTH = 39
_AROUND = 2
_MOST = 400  # expected lines compared: difflib takes minutes for 100,000
_MARKS = {"\t": "\\t", "\r": "\\r", "\f": "\\f", "\v": "\\v", "\0": "\\0"}
_Row = tuple[str, str, str]


def visible(line: bytes) -> str:
    """Return the line for a terminal: no byte of it is hidden or acts on the screen.

    Bytes that are not UTF-8 show as ``\\xNN``, control characters as escapes, blanks
    at the end as ``·``; a lacking line end is said.
    """
    body = line.removesuffix(b"\n")
    text = body.decode("utf-8", "surrogateescape")
    kept = text.rstrip(" ")
    shown = "".join(_shown(char) for char in kept) + "·" * (len(text) - len(kept))
    return shown if line.endswith(b"\n") else shown + " (no newline)"


def _shown(char: str) -> str:
    if char in _MARKS:
        return _MARKS[char]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if char.isprintable():
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def table(
    expected: Sequence[bytes], first: int, found: Sequence[bytes], found_first: int
) -> tuple[str, ...]:
    """Return rows ``number expected | number found``; long equal runs are folded.

    ``first`` and ``found_first`` are the line numbers, from 1, of the first lines.
    Found lines past the last expected one are left out, and of hundreds of lines
    those that follow the first difference are compared alone.
    """
    skipped = 0
    left_out = 0
    if len(expected) > _MOST:
        same = _equal_start(expected, found)
        if same < len(expected):
            skipped = max(0, same - _AROUND)
        left_out = len(expected) - skipped - _MOST
        expected = expected[skipped : skipped + _MOST]
        # Some more, so that lines of the tree's own push no expected one out.
        found = found[skipped : skipped + 2 * _MOST]
        first, found_first = first + skipped, found_first + skipped
    rows: list[_Row] = []
    matcher = SequenceMatcher(None, expected, found, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "insert" and i1 == len(expected):
            break
        stop = min(j2, j1 + i2 - i1) if i2 == len(expected) else j2
        for step in range(max(i2 - i1, stop - j1)):
            left, right = i1 + step, j1 + step
            rows.append(
                _row(
                    (first + left, expected[left]) if left < i2 else None,
                    (found_first + right, found[right]) if right < stop else None,
                )
            )
    if not rows:
        return ()
    title = f"{'':6} {'expected (patch)':{TEXT_WIDTH}}   {'':6} found"
    out = [title.rstrip(), *_equal(skipped), *_fold(rows)]
    if left_out > 0:
        out.append(f"{'':6} … {left_out} more lines, not compared")
    return tuple(out)


def _equal_start(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many lines are the same from the start on."""
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return number
    return min(len(one), len(other))


def _row(left: tuple[int, bytes] | None, right: tuple[int, bytes] | None) -> _Row:
    old = visible(left[1]) if left else ""
    new = visible(right[1]) if right else ""
    mark = "|"
    if left is None:
        mark = ">"
    elif right is None:
        mark = "<"
    elif left[1] != right[1]:
        mark = "!"
    # Of long lines the part around the first difference is the one to show.
    skip = 0
    if mark == "!":
        same = next(
            (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
            min(len(old), len(new)),
        )
        skip = max(0, same - TEXT_WIDTH // 2)
        if max(len(old), len(new)) <= TEXT_WIDTH:
            skip = 0
    return (
        f"{left[0] if left else '':>6} {_cut(old, skip)}",
        mark,
        f"{right[0] if right else '':>6} {_cut(new, skip)}".rstrip(),
    )


def _cut(text: str, skip: int) -> str:
    shown = "…" + text[skip + 1 :] if skip else text
    out, used = "", 0
    for char in shown:
        wide = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used + wide > TEXT_WIDTH:
            while used > TEXT_WIDTH - 1:
                used -= 2 if unicodedata.east_asian_width(out[-1]) in "WF" else 1
                out = out[:-1]
            return out + "…" + " " * (TEXT_WIDTH - 1 - used)
        out, used = out + char, used + wide
    return out + " " * (TEXT_WIDTH - used)


def _fold(rows: Sequence[_Row]) -> list[str]:
    telling = [number for number, row in enumerate(rows) if row[1] != "|"]
    out: list[str] = []
    hidden = 0
    for number, (left, mark, right) in enumerate(rows):
        if telling and not any(abs(number - other) <= _AROUND for other in telling):
            hidden += 1
            continue
        out += _equal(hidden)
        hidden = 0
        out.append(f"{left} {mark} {right}")
    return out + _equal(hidden)


def _equal(count: int) -> list[str]:
    return [f"{'':6} … {count} equal line{'s' * (count > 1)}"] if count else []
