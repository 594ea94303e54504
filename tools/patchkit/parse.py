"""The strict reader of diffs: what ``git diff`` writes, and nothing else.

A patch file is optional prose (a mail header), then file sections that each begin with
``diff --git``, then optionally the signature that ``git format-patch`` ends with. Every
line belongs to one of these; a line that does not is a finding. The result is compared
with unidiff's reading (``second_reader``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from patchkit.diff_model import FileChange, Patch
from patchkit.errors import EnvironmentProblem, UsageError
from patchkit.findings import Finding, has_errors
from patchkit.parse_section import FormFault, SectionReader
from patchkit.second_reader import compare_with_unidiff

_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
_CRLF_HINT = (
    "write it with LF: git config core.autocrlf false, and '*.patch -text' in "
    ".gitattributes"
)


@dataclass(frozen=True)
class ParseResult:
    """``patch`` is None exactly when ``findings`` holds an error."""

    patch: Patch | None
    findings: tuple[Finding, ...]


def read_patch(path: Path, name: str | None = None) -> ParseResult:
    """Read and parse one patch file, ``-`` for standard input.

    ``name`` is what findings call it; as ``./-`` a dash is a file, which no Path tells.

    Raises UsageError when it cannot be read as a file, EnvironmentProblem when
    reading fails.
    """
    shown = name if name is not None else str(path)
    try:
        data = sys.stdin.buffer.read() if shown == "-" else path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{shown}: no such patch file") from None
    except IsADirectoryError:
        raise UsageError(
            f"{shown}: is a directory", hint=f"name the files: {shown}/*.patch"
        ) from None
    except OSError as error:
        raise EnvironmentProblem(f"{shown}: {error.strerror}") from None
    return parse_patch(data, shown)


def parse_patch(data: bytes, name: str) -> ParseResult:
    """Parse the bytes of one patch file; nothing is read or written.

    Raises OwnBug where unidiff reads an accepted patch differently.
    """
    early = _unreadable(data, name)
    if early is not None:
        return ParseResult(None, (early,))
    lines = data.split(b"\n")
    complete = lines[-1] == b""
    if complete:
        lines.pop()
    findings: list[Finding] = []
    crlf = _crlf_line(lines)
    if crlf:
        findings.append(
            Finding(name, crlf, "F004", "the line ends in CRLF", hint=_CRLF_HINT)
        )
        return ParseResult(None, tuple(findings))
    sections = list(_sections(lines))
    header_end = sections[0][0] if sections else len(lines)
    findings += _header_faults(lines[:header_end], name, bool(sections))
    files: list[FileChange] = []
    for start, end in sections:
        reader = SectionReader(lines, start, end, last=end == len(lines))
        try:
            change = reader.read()
        except FormFault as fault:
            findings.append(fault.finding(name))
        else:
            files.append(change)
        findings += [note.finding(name) for note in reader.notes]
    if not complete:
        findings.append(
            Finding(
                name,
                len(lines),
                "F017",
                "the last line has no line end; the file was cut off",
                hint="fetch or export the patch again",
            )
        )
    findings += _same_file_twice(files, name)
    findings += _file_and_folder(files, name)
    findings.sort(key=lambda finding: finding.line)
    if has_errors(findings):
        return ParseResult(None, tuple(findings))
    header = b"".join(line + b"\n" for line in lines[:header_end])
    patch = Patch(name, data, header, tuple(files))
    compare_with_unidiff(patch)
    return ParseResult(patch, tuple(findings))


def _unreadable(data: bytes, name: str) -> Finding | None:
    """Faults of the file as a whole, which make its lines meaningless."""
    if not data:
        return Finding(name, 0, "F001", "the patch file is empty")
    if data.startswith(_BOMS):
        return Finding(
            name,
            1,
            "F003",
            "begins with a byte order mark: UTF-16, UTF-32 or UTF-8 with a mark",
            hint="write it with: git diff --output=FILE (a shell may re-encode '>')",
        )
    at = data.find(b"\0")
    if at != -1:
        line = data.count(b"\n", 0, at) + 1
        return Finding(
            name,
            line,
            "F003",
            "holds a NUL byte: UTF-16 without a mark, or binary content",
            hint="write it with: git diff --output=FILE (a shell may re-encode '>')",
        )
    return None


_COUNTS = re.compile(rb"@@ -\d+(?:,(\d{1,10}))? \+\d+(?:,(\d{1,10}))? @@")
_STRUCTURE = (b"diff --", b"--- a/", b"--- /dev", b"+++ ", b"@@ -", b"index ")


def _crlf_line(lines: list[bytes]) -> int:
    """The first of the diff's own lines that ends in CR, from 1; 0 for none.

    Only lines that git itself words can tell: a body line that ends in CR is the
    content of a CRLF file, so what a hunk's header counts is passed over.
    """
    old = new = 0
    for number, line in enumerate(lines, 1):
        mark = line[:1]
        if (old > 0 or new > 0) and mark in (b" ", b"+", b"-", b"\\"):
            old -= mark in (b" ", b"-")
            new -= mark in (b" ", b"+")
            continue
        old = new = 0
        if line.endswith(b"\r") and line.startswith(_STRUCTURE):
            # `+++ x\r` below a hunk of wrong counts is an added line `++ x`.
            if line.startswith((b"--- ", b"+++ ")) and not _in_header(lines, number):
                continue
            return number
        if hunk := _COUNTS.match(line):
            old, new = (1 if count is None else int(count) for count in hunk.groups())
    return 0


def _in_header(lines: list[bytes], number: int) -> bool:
    above = lines[number - 2] if number > 1 else b""
    return above.startswith(
        (b"index ", b"--- ", b"diff --", b"similarity ", b"rename ")
    )


def _sections(lines: list[bytes]) -> Iterator[tuple[int, int]]:
    """Index ranges of the sections. A body line never begins with ``diff``."""
    starts = [
        index
        for index, line in enumerate(lines)
        if line.startswith((b"diff --git ", b"diff --cc ", b"diff --combined "))
        or line == b"diff --git"
    ]
    yield from zip(starts, [*starts, len(lines)][1:], strict=True)


def _header_faults(header: list[bytes], name: str, sections: bool) -> list[Finding]:
    """Diffs without a git header in the prose above the first section, or no diff."""
    for index, line in enumerate(header[:-1]):
        below = header[index + 1]
        if not (line.startswith(b"---") and below.startswith(b"+++")):
            continue
        if not line[3:].strip() or not below[3:].strip():
            return [
                Finding(
                    name,
                    index + 1,
                    "F010",
                    "the ---/+++ lines name no file",
                    hint="write the patch with: git diff --full-index",
                )
            ]
        if line.startswith(b"--- ") and below.startswith(b"+++ "):
            return [
                Finding(
                    name,
                    index + 1,
                    "F012",
                    "a section without a 'diff --git' line above it",
                    hint="write the patch with: git diff --full-index",
                )
            ]
    if sections:
        return []
    hint = "write the patch with: git diff --full-index --output=FILE"
    if any(b"\x1b[" in line for line in header):
        hint = "the diff is coloured; write it with: git diff --no-color"
    return [Finding(name, 1, "F002", "no file section: this is not a diff", hint=hint)]


def _same_file_twice(files: list[FileChange], name: str) -> list[Finding]:
    """Paths of which two sections change one side.

    A rename changes the old side of one path and the new side of another, so that two
    files may trade names.
    """
    seen: dict[tuple[str, str], int] = {}
    findings = []
    for change in files:
        sides = {(change.path, "old"), (change.path, "new")}
        if change.kind == "rename" and change.old_path is not None:
            sides = {(change.old_path, "old"), (change.path, "new")}
        # A copy leaves its source alone, so the source may have a section too.
        clashes = {side[0]: seen[side] for side in sides if side in seen}
        for path, line in sorted(clashes.items()):
            findings.append(
                Finding(
                    name,
                    change.line,
                    "F015",
                    f"{path} has a section already, at line {line}",
                    hint="one section a file: export both changes as one diff",
                )
            )
        seen.update(dict.fromkeys(sides - seen.keys(), change.line))
    return findings


def _file_and_folder(files: list[FileChange], name: str) -> list[Finding]:
    """Paths that, before or after the patch, would be a file and a folder at once."""
    findings = []
    for side in ("old_path", "new_path"):
        paths = {getattr(change, side): change for change in files}
        for change in paths.values():
            path = getattr(change, side) or ""
            above = [str(parent) for parent in PurePosixPath(path).parents]
            findings += [
                Finding(
                    name,
                    change.line,
                    "F015",
                    f"{path} lies below {folder}, which is a file at line "
                    f"{paths[folder].line}",
                    hint="export the diff again from one tree to another",
                )
                for folder in above
                if folder in paths
            ]
    return findings
