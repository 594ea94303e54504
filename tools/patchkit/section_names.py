"""The two names of a file section: every line that has one must agree."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.diff_model import ChangeKind
from patchkit.diff_paths import name_pairs, shown, to_text, unsafe_reason
from patchkit.form_fault import FormFault

ABSENT = b"/dev/null"
_EXPORT = "write the patch with: git diff --full-index"
_OTHER_PREFIXES = (b"i/", b"w/", b"c/", b"o/")


@dataclass(frozen=True)
class SectionNames:
    """What a section's lines say: ``---`` and ``+++``, and the names it moves between.

    ``line`` is that of ``diff --git``. ``minus`` and ``plus`` are None together, in a
    section without hunks; ``moved`` is None unless it is a rename or copy.
    """

    line: int
    kind: ChangeKind
    minus: bytes | None
    plus: bytes | None
    moved: tuple[bytes, bytes] | None

    def read(self, arguments: bytes) -> tuple[bytes, bytes]:
        """The old and the new name, without ``a/`` and ``b/``.

        ``arguments`` is what follows ``diff --git``. Raises FormFault when a line
        disagrees, a prefix is missing, or a path may not be written.
        """
        pairs = name_pairs(arguments)
        if not pairs:
            raise FormFault(
                self.line, "F010", "the diff --git line does not name two files"
            )
        old, new = self._meant(pairs)
        for name, prefix in ((old, b"a/"), (new, b"b/")):
            if not name.startswith(prefix):
                raise self._lacks_prefix(name, prefix)
        if (old, new) not in pairs:
            raise FormFault(
                self.line,
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
                    self.line,
                    "F009",
                    f"path {shown(to_text(name))} {reason}",
                    "paths are relative to the root of the tree, without . or ..",
                )
        if (self.moved is not None) == (old == new):
            what = "no rename or copy" if self.moved is None else "a rename or copy"
            raise FormFault(
                self.line,
                "F011",
                f"{shown(to_text(old))} becomes {shown(to_text(new))}, and the section "
                f"is {what}",
            )
        return old, new

    def _meant(self, pairs: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        """The names that the lines below ``diff --git`` give, with a/ and b/."""
        if self.minus is not None and self.plus is not None:
            self._check_absent_side(self.minus, self.plus)
        if self.moved is not None:
            meant = (b"a/" + self.moved[0], b"b/" + self.moved[1])
            if self.minus is not None and (self.minus, self.plus) != meant:
                raise FormFault(
                    self.line, "F011", "--- and +++ differ from the rename lines"
                )
            return meant
        if self.minus is not None and self.plus is not None:
            if self.minus == ABSENT:
                return self._other_side(self.plus, b"b/", b"a/"), self.plus
            if self.plus == ABSENT:
                return self.minus, self._other_side(self.minus, b"a/", b"b/")
            return self.minus, self.plus
        same = [pair for pair in pairs if pair[0][2:] == pair[1][2:]]
        if same:
            return same[0]
        plain = [pair for pair in pairs if pair[0] == pair[1]]
        if plain:
            raise self._lacks_prefix(plain[0][0], b"a/")
        raise FormFault(
            self.line, "F011", "the diff --git line names two files, with no rename"
        )

    def _other_side(self, name: bytes, prefix: bytes, other: bytes) -> bytes:
        if not name.startswith(prefix):
            raise self._lacks_prefix(name, prefix)
        return other + name[2:]

    def _check_absent_side(self, minus: bytes, plus: bytes) -> None:
        wanted = (self.kind == "create", self.kind == "delete")
        if (minus == ABSENT, plus == ABSENT) != wanted:
            raise FormFault(
                self.line,
                "F011",
                "/dev/null stands for the absent side of a created or deleted file, "
                "and needs its 'new file mode' or 'deleted file mode' line",
                _EXPORT,
            )

    def _lacks_prefix(self, name: bytes, prefix: bytes) -> FormFault:
        other = name.startswith(_OTHER_PREFIXES)
        setting = "mnemonicPrefix" if other else "noprefix"
        return FormFault(
            self.line,
            "F008",
            f"path {shown(to_text(name))} lacks the {prefix.decode()} prefix; "
            "stripping one component would drop a directory",
            f"write it with: git -c diff.{setting}=false diff --full-index",
        )
