"""Reads one file section: the ``diff --git`` line, its headers, its hunks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from patchkit.blob import blob_id, blob_id_sha256
from patchkit.diff_model import ChangeKind, FileChange
from patchkit.diff_paths import read_name, shown, to_text
from patchkit.form_fault import FormFault
from patchkit.parse_hunks import HunkReader
from patchkit.section_names import SectionNames

__all__ = ["FormFault", "SectionReader"]

_EXPORT = "write the patch with: git diff --full-index"
# Of repositories of either object format, sha1 and sha256.
_EMPTY_BLOBS = tuple(make(b"").encode() for make in (blob_id, blob_id_sha256))
_INDEX = re.compile(rb"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?")
_FIELDS = (
    b"old mode ",
    b"new mode ",
    b"deleted file mode ",
    b"new file mode ",
    b"similarity index ",
    b"dissimilarity index ",
    b"rename from ",
    b"rename to ",
    b"copy from ",
    b"copy to ",
    b"index ",
)


@dataclass
class _Headers:
    """Header fields with the line each one stands on."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    lines: dict[bytes, int] = field(default_factory=dict)

    def get(self, key: bytes) -> bytes | None:
        return self.values.get(key)


class SectionReader:
    """Reads ``lines[start:end]``; ``last`` tells whether the file ends with it."""

    def __init__(self, lines: list[bytes], start: int, end: int, *, last: bool) -> None:
        self._lines = lines
        self._start = start
        self._end = end
        self._last = last
        self.notes: list[FormFault] = []

    def read(self) -> FileChange:
        """Return the section's model. Raises FormFault at the first fault."""
        first = self._lines[self._start]
        number = self._start + 1
        if not first.startswith(b"diff --git"):
            raise FormFault(
                number,
                "F005",
                "a combined diff of a merge commit has no single old side",
                "diff against one parent: git diff --full-index HEAD^1 HEAD",
            )
        headers, at = self._read_headers()
        old_mode, new_mode, kind = self._modes(headers)
        minus, plus, at = self._read_file_lines(at)
        moves = self._moved_names(headers, kind)
        old, new = SectionNames(number, kind, minus, plus, moves).read(
            first[len(b"diff --git ") :]
        )
        hunks = HunkReader(self._lines, at, self._end, last=self._last)
        found = hunks.read(kind) if minus is not None else ()
        if minus is None:
            hunks.expect_end()
        self.notes += hunks.notes
        kind = self._check_content(kind, headers, bool(found), number, (old, new))
        old_blob, new_blob = self._blobs(headers, kind, bool(found), number)
        similarity = headers.get(b"similarity index ")
        return FileChange(
            line=number,
            kind=kind,
            old_path=None if kind == "create" else to_text(old),
            new_path=None if kind == "delete" else to_text(new),
            old_mode=old_mode,
            new_mode=new_mode,
            old_blob=old_blob,
            new_blob=new_blob,
            similarity=int(similarity[:-1]) if similarity else None,
            hunks=found,
        )

    def _read_headers(self) -> tuple[_Headers, int]:
        headers = _Headers()
        at = self._start + 1
        while at < self._end:
            line = self._lines[at]
            key = next((key for key in _FIELDS if line.startswith(key)), None)
            if key is None:
                break
            if key in headers.values:
                raise FormFault(at + 1, "F014", f"{_word(key)} stands twice", _EXPORT)
            headers.values[key] = line[len(key) :]
            headers.lines[key] = at + 1
            at += 1
        if at < self._end and self._lines[at].startswith(
            (b"GIT binary patch", b"Binary files ")
        ):
            raise FormFault(
                at + 1,
                "F006",
                "a binary section: its content cannot be reviewed or checked",
                "leave binary files out of the patch",
            )
        return headers, at

    def _modes(self, headers: _Headers) -> tuple[int | None, int | None, ChangeKind]:
        created = headers.get(b"new file mode ")
        deleted = headers.get(b"deleted file mode ")
        old, new = headers.get(b"old mode "), headers.get(b"new mode ")
        parsed: dict[bytes, int] = {}
        keys = (b"new file mode ", b"deleted file mode ", b"old mode ", b"new mode ")
        for key in keys:
            value = headers.get(key)
            if value is not None:
                parsed[key] = _mode(value, headers.lines[key])
        line = self._start + 1
        if (old is None) != (new is None):
            raise FormFault(
                line, "F013", "old mode and new mode go together; one is missing"
            )
        if old is not None and old == new:
            raise FormFault(line, "F013", f"old and new mode are both {_text(old)}")
        if sum(value is not None for value in (created, deleted, old)) > 1:
            raise FormFault(line, "F013", "contradicting mode lines in one section")
        renamed = self._pair(headers, b"rename from ", b"rename to ")
        copied = self._pair(headers, b"copy from ", b"copy to ")
        if ((created or deleted) and (renamed or copied)) or (renamed and copied):
            raise FormFault(
                line, "F014", "a section is of one kind; these lines differ"
            )
        index_mode = self._index_mode(headers)
        if created is not None:
            return None, parsed[b"new file mode "], "create"
        if deleted is not None:
            return parsed[b"deleted file mode "], None, "delete"
        kind: ChangeKind = "rename" if renamed else "copy" if copied else "modify"
        if old is not None:
            if index_mode is not None:
                raise FormFault(
                    line, "F013", "the index line states a mode beside old and new mode"
                )
            return parsed[b"old mode "], parsed[b"new mode "], kind
        return index_mode, index_mode, kind

    def _pair(self, headers: _Headers, one: bytes, two: bytes) -> bool:
        given = [key for key in (one, two) if headers.get(key) is not None]
        if len(given) == 1:
            raise FormFault(
                headers.lines[given[0]],
                "F014",
                f"{_word(one)} and {_word(two)} go together; one is missing",
                _EXPORT,
            )
        similarity = headers.get(b"similarity index ")
        if given and (similarity is None or not re.fullmatch(rb"\d{1,3}%", similarity)):
            raise FormFault(
                self._start + 1,
                "F014",
                "a rename or copy without a good similarity index line",
                _EXPORT,
            )
        return bool(given)

    def _index_mode(self, headers: _Headers) -> int | None:
        value = headers.get(b"index ")
        if value is None:
            return None
        line = headers.lines[b"index "]
        match = _INDEX.fullmatch(b"index " + value)
        if match is None or len(match[1]) != len(match[2]):
            raise FormFault(
                line,
                "F019",
                "malformed index line: two blob ids of one length and perhaps a mode",
                _EXPORT,
            )
        return None if match[3] is None else _mode(match[3], line)

    def _read_file_lines(self, at: int) -> tuple[bytes | None, bytes | None, int]:
        """Read ``---`` and ``+++``; (None, None) where the section has neither."""
        if at >= self._end or not self._lines[at].startswith(b"---"):
            if at < self._end and self._lines[at].startswith((b"@@", b"+++")):
                raise FormFault(at + 1, "F014", "the --- and +++ lines are missing")
            return None, None, at
        if self._lines[at] == b"-- ":
            return None, None, at
        names: list[bytes] = []
        for marker in (b"---", b"+++"):
            if at >= self._end or not self._lines[at].startswith(marker):
                raise FormFault(
                    min(at, self._end - 1) + 1, "F014", f"no {_text(marker)} line here"
                )
            names.append(self._file_name(at, marker))
            at += 1
        return names[0], names[1], at

    def _file_name(self, at: int, marker: bytes) -> bytes:
        raw = self._lines[at][len(marker) :]
        if not raw.strip():
            raise FormFault(at + 1, "F010", f"the {_text(marker)} line names no file")
        read = read_name(raw[1:]) if raw.startswith(b" ") else None
        if read is None:
            raise FormFault(at + 1, "F014", f"malformed {_text(marker)} line", _EXPORT)
        name, rest = read
        if rest not in (b"", b"\t"):
            raise FormFault(
                at + 1,
                "F014",
                f"text after the name on the {_text(marker)} line (a time stamp?)",
                _EXPORT,
            )
        return name

    def _moved_names(
        self, headers: _Headers, kind: ChangeKind
    ) -> tuple[bytes, bytes] | None:
        """The names on rename or copy lines, without a/ and b/; None without such."""
        if kind not in ("rename", "copy"):
            return None
        names = []
        for end in (b" from ", b" to "):
            key = kind.encode() + end
            read = read_name(headers.values[key])
            if read is None or not read[0] or read[1]:
                raise FormFault(
                    headers.lines[key], "F014", f"malformed {_word(key)} line"
                )
            names.append(read[0])
        return names[0], names[1]

    def _check_content(
        self,
        kind: ChangeKind,
        headers: _Headers,
        has_hunks: bool,
        line: int,
        names: tuple[bytes, bytes],
    ) -> ChangeKind:
        """Refuse sections that change nothing, or that lack hunks they announce."""
        mode_changes = headers.get(b"old mode ") is not None
        similarity = headers.get(b"similarity index ")
        index = headers.get(b"index ")
        what = shown(to_text(names[1]))
        if kind in ("rename", "copy"):
            if (similarity == b"100%") == has_hunks:
                raise FormFault(
                    line,
                    "F018",
                    f"{what}: similarity {_text(similarity or b'?')} and "
                    + ("hunks" if has_hunks else "no hunks"),
                )
        elif similarity is not None:
            raise FormFault(line, "F014", "a similarity index without rename or copy")
        elif not has_hunks and kind in ("create", "delete"):
            side = 1 if kind == "create" else 0
            ids = (index or b"..").split(b" ")[0].split(b"..")
            empty = (blob.startswith(ids[side]) for blob in _EMPTY_BLOBS)
            if not ids[side] or not any(empty):
                raise FormFault(
                    line,
                    "F018",
                    f"{what}: {kind}d without hunks, and not as an empty file",
                    "the patch was cut off, or its index line is missing",
                )
        elif not has_hunks and (not mode_changes or index is not None):
            raise FormFault(
                line,
                "F018",
                f"{what}: the section has no hunks",
                "the patch was cut off; export it again",
            )
        if kind == "modify" and mode_changes and not has_hunks:
            return "mode"
        return kind

    def _blobs(
        self, headers: _Headers, kind: ChangeKind, has_hunks: bool, line: int
    ) -> tuple[str | None, str | None]:
        index = headers.get(b"index ")
        if index is None:
            if has_hunks:
                self.notes.append(
                    FormFault(
                        line,
                        "F020",
                        "no index line: the file before and after cannot be known",
                        _EXPORT,
                        "warning",
                    )
                )
            return None, None
        match = _INDEX.fullmatch(b"index " + index)
        assert match is not None  # _index_mode has read it
        old, new = match[1], match[2]
        zero = (not old.strip(b"0"), not new.strip(b"0"))
        if zero != (kind == "create", kind == "delete"):
            raise FormFault(
                headers.lines[b"index "],
                "F019",
                "an id of zeros stands for the absent side of a created or deleted "
                "file, and for nothing else",
                _EXPORT,
            )
        if old == new:
            raise FormFault(
                headers.lines[b"index "],
                "F019",
                "the blob ids before and after are one",
            )
        return (
            None if zero[0] else old.decode(),
            None if zero[1] else new.decode(),
        )


def _mode(value: bytes, line: int) -> int:
    if value == b"160000":
        raise FormFault(
            line,
            "F007",
            "a submodule (mode 160000): its commit is not content of this tree",
            "leave the submodule out: git diff --ignore-submodules",
        )
    if value not in (b"100644", b"100755"):
        what = "a symbolic link" if value == b"120000" else f"mode {_text(value)}"
        raise FormFault(
            line, "F013", f"{what}: only regular files, 100644 or 100755, are patched"
        )
    return int(value, 8)


def _text(value: bytes) -> str:
    return shown(value.decode("utf-8", "surrogateescape"))


def _word(key: bytes) -> str:
    return f"'{key.decode().strip()}'"
