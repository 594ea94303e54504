"""Checks on the text of added lines: width, blanks, markers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from patchkit.diff_model import FileChange, Hunk, HunkLine, Patch
from patchkit.findings import Finding

DEFAULT_WIDTH = 88
TAB_SIZE = 4  # ruff's indent-width
_PYTHON = (".py", ".pyi")
_CONFLICT = re.compile(rb"(<{7}|>{7}|\|{7})( |$)|={7}$")
_SPDX = re.compile(r"\s*#\s*SPDX-(License-Identifier|FileCopyrightText):")
_PRAGMA = re.compile(
    r"\s*#\s*(noqa|type:|pyright:|pylint:|flake8:|ruff:|isort:|nosec)\S*.*$",
    re.IGNORECASE,
)


def check_text(patch: Patch, width: int = DEFAULT_WIDTH) -> list[Finding]:
    """Findings for the added lines of ``patch``; ``width`` is in columns.

    Width is measured for Python files alone, as ruff's E501 measures it: columns of
    a terminal, a tab to the next multiple of four; a line of one word, a line that
    ends in a URL which begins within the width, and trailing pragmas are exempt.
    """
    findings = []
    for change in patch.files:
        for hunk in change.hunks:
            cr = _cr_is_usual(change, hunk)
            for entry in hunk.lines:
                if entry.kind == "+":
                    for code, message in _faults(entry, change.path, width, cr):
                        findings.append(
                            Finding(
                                patch.name,
                                entry.line,
                                code,
                                f"{change.path}: {message}",
                            )
                        )
        findings += _blank_at_end(patch, change)
    return findings


def _cr_is_usual(change: FileChange, hunk: Hunk) -> bool:
    """Whether the old lines around an addition end in CR, as those of a CRLF file."""
    old = [entry for entry in hunk.lines if entry.kind != "+"]
    if not old:
        added = [entry.text for h in change.hunks for entry in h.lines]
        return all(text.endswith(b"\r") for text in added)
    return any(entry.text.endswith(b"\r") for entry in old)


def _faults(
    entry: HunkLine, path: str, width: int, cr_is_usual: bool
) -> Iterator[tuple[str, str]]:
    text = entry.text
    if text.endswith(b"\r"):
        if not cr_is_usual:
            yield "W306", "added line ends in CR, and its file has LF lines"
        text = text[:-1]
    # Form feed, vertical tab and CR inside a line are content, not blanks at its end.
    if text != text.rstrip(b" \t"):
        yield "W301", "trailing white space in an added line"
    indent = text[: len(text) - len(text.lstrip(b" \t"))]
    if b" \t" in indent:
        yield "W303", "a blank before a tab in the indent"
    if _CONFLICT.match(text):
        yield "W304", "a conflict marker was left in"
    if path.endswith(_PYTHON):
        columns = overlong(text.decode("utf-8", "replace"), width)
        if columns:
            yield "W302", f"width {columns} > {width}"


def overlong(line: str, limit: int) -> int:
    """The columns of a line that is too wide by ruff's E501, else 0."""
    # Trailing pragmas do not count; what is left is judged.
    line = _PRAGMA.sub("", line)
    columns = line_width(line)
    chunks = line.split()
    if columns <= limit or len(chunks) < 2:
        return 0
    if "://" in chunks[-1] and columns - line_width(chunks[-1]) <= limit:
        return 0
    if _SPDX.match(line):
        return 0
    return columns


def line_width(line: str) -> int:
    """Columns on a terminal: wide characters are two, combining ones none."""
    if line.isascii() and "\t" not in line:
        return len(line)
    columns = 0
    # For tab stops ruff counts every character as one, whatever its width.
    position = 0
    for character in line:
        step = 1
        if character == "\t":
            step = TAB_SIZE - position % TAB_SIZE
            columns += step
        elif unicodedata.east_asian_width(character) in "WF":
            columns += 2
        elif unicodedata.category(character) not in ("Mn", "Me", "Cf"):
            columns += 1
        position += step
    return columns


def _blank_at_end(patch: Patch, change: FileChange) -> list[Finding]:
    """Blank lines added as a file's last: only the last hunk can end a file."""
    if not change.hunks or change.kind == "delete":
        return []
    last = change.hunks[-1].lines[-1]
    if last.kind != "+" or last.text.strip(b" \t\r"):
        return []
    return [
        Finding(
            patch.name,
            last.line,
            "W305",
            f"{change.path}: a blank line is added at the end of the file",
        )
    ]
