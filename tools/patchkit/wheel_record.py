"""A wheel's RECORD kept true: the hash and size of each file that changes.

Only lines in the form that installers write, and true of the file before, are
changed, and new files get a line at the end; so taking the patches off gives the
RECORD back byte for byte. Lines of removed files stay: pip passes over them.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

from patchkit.file_state import FileState
from patchkit.plan_types import PlannedFile
from patchkit.tree_source import TreeSource


def plan_record(files: Sequence[PlannedFile], root: Path) -> tuple[PlannedFile, ...]:
    """The RECORD of the distribution that ``files`` belong to, before and after.

    Empty where no ``*.dist-info/RECORD`` below ``root`` lists one of them.
    """
    planned = []
    source = TreeSource(root)
    for folder in sorted(root.glob("*.dist-info")):
        path = f"{folder.name}/RECORD"
        before = source.read(path) if not folder.is_symlink() else None
        if before is None:
            continue
        data = _rewrite(before.data, files)
        if data is not None and data != before.data:
            planned.append(PlannedFile(path, before, FileState(data, before.mode)))
    return tuple(planned)


def _rewrite(record: bytes, files: Sequence[PlannedFile]) -> bytes | None:
    """The new RECORD, or None where it is another distribution's."""
    lines = record.split(b"\n")
    if lines[-1] != b"":
        return None  # no last line end: not what an installer writes
    lines.pop()
    end = b"\r" if lines and lines[0].endswith(b"\r") else b""
    where = {_path_of(line): number for number, line in enumerate(lines)}
    if not any(file.before is not None and file.path in where for file in files):
        return None
    removed: set[int] = set()
    added: list[bytes] = []
    for file in files:
        number = where.get(file.path)
        old = None if file.before is None else _line(file.path, file.before.data) + end
        new = None if file.after is None else _line(file.path, file.after.data) + end
        if number is None:
            if old is None and new is not None:
                added.append(new)
        elif new is not None and lines[number] == old:
            lines[number] = new
        elif new is None and lines[number] == old:
            removed.add(number)
    # Only lines at the very end go: those an earlier run put there.
    while len(lines) - 1 in removed:
        lines.pop()
    return b"".join(line + b"\n" for line in [*lines, *added])


def _path_of(line: bytes) -> str:
    text = line.decode("utf-8", "surrogateescape")
    return next(csv.reader(io.StringIO(text)), [""])[0]


def _line(path: str, data: bytes) -> bytes:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    shown = f'"{path}"' if "," in path or '"' in path else path
    return f"{shown},sha256={digest.decode()},{len(data)}".encode(
        "utf-8", "surrogateescape"
    )
