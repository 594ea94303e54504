"""The header of a patch file and the message of a commit: one text in two forms.

A patch begins with ``Subject: `` and the message's first line, then the rest of the
message, then a line ``---`` before the diff.
"""

from __future__ import annotations

from patchkit.errors import Refused

_SUBJECT = b"Subject: "
_END = b"---\n"
_DIFF_STARTS = (b"diff --git ", b"--- ", b"+++ ", b"@@ ", b"Index: ")


def message_of(header: bytes) -> bytes:
    """The commit message for a patch's header; ends with one newline."""
    text = header.removesuffix(_END).strip(b"\n")
    return text.removeprefix(_SUBJECT) + b"\n"


def header_of(message: bytes) -> bytes:
    """The header for a commit message, ``---`` included.

    Raises Refused when the message is empty, no UTF-8, or would be read as part of
    the diff.
    """
    text = message.strip(b"\n")
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("its message is not UTF-8") from None
    if not text.strip():
        raise Refused("it has no message", hint="git commit --amend")
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.startswith(_DIFF_STARTS) or line.rstrip() == b"---":
            raise Refused(
                f"line {number} of its message would be read as the diff: "
                f"{line.decode('utf-8', 'replace')}",
                hint="git commit --amend",
            )
    return _SUBJECT + text + b"\n" + _END


def subject_of(message: bytes) -> str:
    """The first line of a commit message."""
    first = message.strip(b"\n").partition(b"\n")[0]
    return first.decode("utf-8", "replace").strip()
