"""The text of a ``ledger.toml``, written anew with every comment that stays true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from patchkit.errors import UsageError
from patchkit.series import LEDGER_KEYS

_NEW_HEAD = (
    "# One table a patch: why it is here, how it is tested, what upstream does, when it"
    " goes.\n\n"
)


@dataclass(frozen=True)
class LedgerEntry:
    """A patch of the new ledger: its name, the one it had here, or its text.

    ``known`` fills a table that this ledger lacks, key by key.
    """

    name: str
    before: str | None = None
    known: Mapping[str, str] | None = None


def read_ledger(file: Path) -> Mapping[str, Mapping[str, str]]:
    """The tables of a ledger as they are; an absent file has none."""
    if not file.is_file():
        return {}
    return _parse(file).unwrap()


def ledger_text(file: Path, entries: Sequence[LedgerEntry]) -> str:
    """The ledger of ``file`` with a table for each entry, in order.

    Tables keep their text under a new name; a new one has empty values, which the
    verifier refuses until they are written. Raises UsageError when ``file`` is no
    TOML.
    """
    text = file.read_text(encoding="utf-8") if file.is_file() else _NEW_HEAD
    pieces = _pieces(text, _parse(file) if file.is_file() else tomlkit.document())
    out = [pieces.pop("", "")]
    for entry in entries:
        piece = pieces.get(entry.before) if entry.before is not None else None
        if piece is None:
            known = entry.known or {}
            piece = _new_table(entry.name, [(k, known.get(k, "")) for k in LEDGER_KEYS])
        elif entry.before != entry.name:
            head, _, rest = piece.partition("]")
            lead = head[: head.rindex("[")]
            piece = f'{lead}["{entry.name}"]{rest}'
        out.append(piece.rstrip("\n") + "\n")
    return "\n".join(part.rstrip("\n") + "\n" for part in out if part.strip())


def _parse(file: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise UsageError(f"{file}: no ledger: {error}") from None


def _pieces(text: str, document: tomlkit.TOMLDocument) -> dict[str, str]:
    """The text of each table, comments above it included; "" has what opens it."""
    names = list(document)
    lines = text.split("\n")
    starts = [
        number
        for number, line in enumerate(lines)
        if line.lstrip().startswith("[") and line.rstrip().endswith("]")
    ]
    if len(starts) != len(names):
        raise UsageError("ledger.toml: each table must begin on a line of its own")
    begins = []
    for start in starts:
        begin = start
        while begin and lines[begin - 1].startswith("#"):
            begin -= 1
        # A block of comments that opens the file is about the whole of it.
        begins.append(start if begin == 0 else begin)
    pieces = {"": "\n".join(lines[: begins[0]] if begins else lines)}
    ends = [*begins[1:], len(lines)][: len(begins)]
    for name, begin, end in zip(names, begins, ends, strict=True):
        pieces[name] = "\n".join(lines[begin:end])
    return pieces


def _new_table(name: str, values: Sequence[tuple[str, str]]) -> str:
    table = tomlkit.table()
    for key, value in values:
        table.add(key, value)
    document = tomlkit.document()
    document.add(name, table)
    return tomlkit.dumps(document)
