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
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import KitError
from patchkit.file_state import FileState
from patchkit.plan_types import PlannedFile
from patchkit.tree_source import TreeSource


@dataclass(frozen=True)
class RecordPlan:
    """Each RECORD that changes, and what could not be kept true, for a person."""

    files: tuple[PlannedFile, ...] = ()
    notes: tuple[str, ...] = ()


def plan_record(
    files: Sequence[PlannedFile], root: Path, *, revert: bool
) -> RecordPlan:
    """The RECORD of the distribution that ``files`` belong to, before and after.

    Empty where no ``*.dist-info/RECORD`` below ``root`` lists one of them. One that
    is a link, cannot be read, or is among ``files`` is left alone.
    """
    planned: list[PlannedFile] = []
    notes: list[str] = []
    source = TreeSource(root)
    paths = [os.fsencode(_quoted(file.path)) for file in files if file.before]
    patched = {file.path for file in files}
    for folder in sorted(root.glob("*.dist-info")):
        path = f"{folder.name}/RECORD"
        if path in patched:
            # Two plans for one file: the later would undo what the patches say.
            notes.append(f"{path}: as the patches leave it, since they change it")
            continue
        try:
            before = source.read(path)
        except KitError:
            continue
        # A site-packages folder has hundreds; parsing them all would take seconds.
        if before is None or not any(name in before.data for name in paths):
            continue
        data, strange = _rewrite(before.data, files, revert=revert)
        if data != before.data:
            planned.append(PlannedFile(path, before, FileState(data, before.mode)))
        if strange:
            notes.append(
                f"{path}: {len(strange)} lines do not read as an installer writes them "
                f"or were untrue before, and are left as they are: {strange[0]}"
            )
    return RecordPlan(tuple(planned), tuple(notes))


def _rewrite(
    record: bytes, files: Sequence[PlannedFile], *, revert: bool
) -> tuple[bytes, list[str]]:
    """The new RECORD, unchanged where it is another distribution's, and the paths
    whose lines could not be given back byte for byte once changed."""
    lines = record.split(b"\n")
    end = b"\r" if lines[0].endswith(b"\r") else b""
    where = {_path_of(line): number for number, line in enumerate(lines)}
    listed = [file.path for file in files if file.before and file.path in where]
    if lines.pop() or not listed:
        # Without a last line end, which every installer writes, nothing is touched.
        return record, listed
    removed: set[int] = set()
    added: list[bytes] = []
    strange: list[str] = []
    for file in files:
        number = where.get(file.path)
        old = None if file.before is None else _line(file.path, file.before.data) + end
        new = None if file.after is None else _line(file.path, file.after.data) + end
        if number is None:
            if old is None and new is not None:
                added.append(new)
        elif lines[number] != old:
            if new is not None and lines[number] != new:
                strange.append(file.path)
        elif new is not None:
            lines[number] = new
        elif revert:
            removed.add(number)
    # Only lines at the very end go: those that applying put there.
    while len(lines) - 1 in removed:
        lines.pop()
    return b"".join(line + b"\n" for line in [*lines, *added]), strange


def _path_of(line: bytes) -> str:
    text = line.decode("utf-8", "surrogateescape")
    try:
        row = next(csv.reader(io.StringIO(text)), [])
    except csv.Error:
        return ""
    return row[0] if row else ""


def _quoted(path: str) -> str:
    """As Python's csv module writes a field, with which installers write RECORD."""
    if "," in path or '"' in path:
        return '"' + path.replace('"', '""') + '"'
    return path


def _line(path: str, data: bytes) -> bytes:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"{_quoted(path)},sha256={digest.decode()},{len(data)}".encode(
        "utf-8", "surrogateescape"
    )
