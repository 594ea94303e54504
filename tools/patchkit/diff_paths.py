"""Paths in diffs: git's C quoting, and which paths may be written at all."""

from __future__ import annotations

import re

OWN_FOLDER = ".vllm-patchkit"  # below the root: journals and kept attributes
_NAME_MAX = 255
_PATH_MAX = 4095

_ESCAPES = {
    ord("a"): 7,
    ord("b"): 8,
    ord("t"): 9,
    ord("n"): 10,
    ord("v"): 11,
    ord("f"): 12,
    ord("r"): 13,
    ord('"'): 34,
    ord("\\"): 92,
}
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')


def to_text(path: bytes) -> str:
    """Decode a path as the file system does: UTF-8, other bytes kept as surrogates."""
    return path.decode("utf-8", "surrogateescape")


def shown(path: str) -> str:
    """A path as it may be printed: no control character, no lone surrogate."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def take_quoted(raw: bytes) -> tuple[bytes, bytes] | None:
    """Split ``"name" rest`` into the decoded name and the rest; None if malformed.

    The quoting is git's ``quote_c_style``: backslash letters and three octal digits.
    """
    out = bytearray()
    at = 1
    while at < len(raw):
        byte = raw[at]
        if byte == ord('"'):
            return bytes(out), raw[at + 1 :]
        if byte != ord("\\"):
            out.append(byte)
            at += 1
            continue
        escape = _ESCAPE.match(raw, at)
        if escape is None:
            return None
        code = escape.group(1)
        out.append(int(code, 8) if len(code) == 3 else _ESCAPES[code[0]])
        at = escape.end()
    return None


def read_name(raw: bytes) -> tuple[bytes, bytes] | None:
    """Read the name of a ``---``, ``+++``, ``rename`` or ``copy`` line.

    Returns the name and what follows it: empty, or from a tab on. git ends a name
    that holds a blank with one tab, which is dropped here. None if malformed.
    """
    if raw.startswith(b'"'):
        return take_quoted(raw)
    name, tab, rest = raw.partition(b"\t")
    return name, (tab + rest if rest else b"")


def name_pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Every way to read ``diff --git`` arguments as two names.

    Unquoted names may hold blanks, so one line may have several readings; the other
    lines of the section tell which one is meant.
    """
    pairs: list[tuple[bytes, bytes]] = []
    if raw.startswith(b'"'):
        first = take_quoted(raw)
        if first is None or not first[1].startswith(b" "):
            return []
        second = _whole_name(first[1][1:])
        return [] if second is None else [(first[0], second)]
    at = raw.find(b" ")
    while at != -1:
        second = _whole_name(raw[at + 1 :])
        if at and second:
            pairs.append((raw[:at], second))
        at = raw.find(b" ", at + 1)
    return pairs


def _whole_name(raw: bytes) -> bytes | None:
    if not raw.startswith(b'"'):
        return raw
    taken = take_quoted(raw)
    return None if taken is None or taken[1] else taken[0]


def unsafe_reason(path: bytes) -> str:
    """Why a path may not be written below a root, or an empty string.

    Refused: absolute paths, ``.`` and ``..`` and empty components, anything inside
    ``.git`` or the kit's own folder, NUL, backslashes and drive letters (other
    systems' separators), and what is longer than a file system takes.
    """
    reason = ""
    parts = path.split(b"/")
    if path.startswith(b"/"):
        reason = "is absolute"
    elif b"\0" in path:
        reason = "holds a NUL byte"
    elif b"\\" in path or re.match(rb"[A-Za-z]:", path):
        reason = "holds a backslash or a drive letter"
    elif b".." in parts:
        reason = "escapes the root with .."
    elif b"" in parts or b"." in parts:
        reason = "has an empty or a . component"
    elif any(part.lower() == b".git" for part in parts):
        reason = "lies inside .git"
    elif parts[0].lower() == OWN_FOLDER.encode():
        reason = f"lies inside {OWN_FOLDER}, the kit's own folder"
    elif max(map(len, parts)) > _NAME_MAX or len(path) > _PATH_MAX:
        reason = f"is longer than {_NAME_MAX} bytes a component, or {_PATH_MAX} in all"
    return reason
