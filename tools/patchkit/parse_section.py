"""Reads one file section: the ``diff --git`` line, its headers, its hunks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from patchkit.diff_model import ChangeKind, FileChange
from patchkit.diff_paths import name_pairs, read_name, shown, to_text, unsafe_reason
from patchkit.form_fault import FormFault
from patchkit.parse_hunks import HunkReader

__all__ = ["FormFault", "SectionReader"]

_EXPORT = "write the patch with: git diff --full-index"
_EMPTY_BLOB = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
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
_OTHER_PREFIXES = (b"i/", b"w/", b"c/", b"o/")


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
        minus, plus, at = self._read_file_lines(at, kind)
        old, new = self._names(first[len(b"diff --git ") :], headers, minus, plus, kind)
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

    def _read_file_lines(
        self, at: int, kind: ChangeKind
    ) -> tuple[bytes | None, bytes | None, int]:
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
        del kind
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

    def _names(
        self,
        raw: bytes,
        headers: _Headers,
        minus: bytes | None,
        plus: bytes | None,
        kind: ChangeKind,
    ) -> tuple[bytes, bytes]:
        line = self._start + 1
        pairs = name_pairs(raw)
        if not pairs:
            raise FormFault(line, "F010", "the diff --git line does not name two files")
        old, new = self._meant_pair(pairs, headers, minus, plus, kind)
        for name, prefix in ((old, b"a/"), (new, b"b/")):
            if not name.startswith(prefix):
                raise FormFault(line, "F008", *_prefix_fault(name, prefix))
        if (old, new) not in pairs:
            raise FormFault(
                line,
                "F011",
                f"the diff --git line does not name {shown(to_text(old))} and "
                f"{shown(to_text(new))} as the lines below it do",
                _EXPORT,
            )
        old, new = old[2:], new[2:]
        for name in (old, new):
            reason = unsafe_reason(name)
            if reason:
                raise FormFault(
                    line,
                    "F009",
                    f"path {shown(to_text(name))} {reason}",
                    "paths are relative to the root of the tree, without . or ..",
                )
        moved = kind in ("rename", "copy")
        if moved == (old == new):
            raise FormFault(
                line,
                "F011",
                f"{shown(to_text(old))} becomes {shown(to_text(new))}, and the "
                "section is " + ("a rename or copy" if moved else "no rename or copy"),
            )
        return old, new

    def _meant_pair(
        self,
        pairs: list[tuple[bytes, bytes]],
        headers: _Headers,
        minus: bytes | None,
        plus: bytes | None,
        kind: ChangeKind,
    ) -> tuple[bytes, bytes]:
        """The two names that the section's other lines give, with a/ and b/."""
        line = self._start + 1
        absent = b"/dev/null"
        if minus is not None and plus is not None:
            self._check_dev_null(minus, plus, kind)
        if kind in ("rename", "copy"):
            word = kind.encode()
            names = []
            for key in (word + b" from ", word + b" to "):
                read = read_name(headers.values[key])
                if read is None or not read[0] or read[1]:
                    raise FormFault(
                        headers.lines[key], "F014", f"malformed {_word(key)} line"
                    )
                names.append(read[0])
            meant = (b"a/" + names[0], b"b/" + names[1])
            if minus is not None and (minus, plus) != meant:
                raise FormFault(
                    line, "F011", "--- and +++ differ from the rename lines"
                )
            return meant
        if minus is not None and plus is not None:
            if minus == absent:
                return self._other_side(plus, b"b/", b"a/"), plus
            if plus == absent:
                return minus, self._other_side(minus, b"a/", b"b/")
            return minus, plus
        same = [pair for pair in pairs if pair[0][2:] == pair[1][2:]]
        plain = [pair for pair in pairs if pair[0] == pair[1]]
        if not same and plain:
            raise FormFault(line, "F008", *_prefix_fault(plain[0][0], b"a/"))
        if not same:
            raise FormFault(
                line, "F011", "the diff --git line names two files, with no rename"
            )
        return same[0]

    def _other_side(self, name: bytes, prefix: bytes, other: bytes) -> bytes:
        if not name.startswith(prefix):
            raise FormFault(self._start + 1, "F008", *_prefix_fault(name, prefix))
        return other + name[2:]

    def _check_dev_null(self, minus: bytes, plus: bytes, kind: ChangeKind) -> None:
        absent = b"/dev/null"
        wanted = {"create": (True, False), "delete": (False, True)}.get(
            kind, (False, False)
        )
        if (minus == absent, plus == absent) != wanted:
            raise FormFault(
                self._start + 1,
                "F011",
                "/dev/null stands for the absent side of a created or deleted file, "
                "and needs its 'new file mode' or 'deleted file mode' line",
                _EXPORT,
            )

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
            if not ids[side] or not _EMPTY_BLOB.startswith(ids[side]):
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


def _prefix_fault(name: bytes, prefix: bytes) -> tuple[str, str]:
    setting = "noprefix"
    if name.startswith(_OTHER_PREFIXES):
        setting = "mnemonicPrefix"
    return (
        f"path {shown(to_text(name))} lacks the {_text(prefix)} prefix; stripping one "
        "component would drop a directory",
        f"write it with: git -c diff.{setting}=false diff --full-index",
    )


def _text(value: bytes) -> str:
    return shown(value.decode("utf-8", "surrogateescape"))


def _word(key: bytes) -> str:
    return f"'{key.decode().strip()}'"
