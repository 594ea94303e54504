"""The texts of a shared library: schemas of operators, and names bound for Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from patchkit.elf_texts import pointed_names

# A compiler may keep the pieces of a constant that it loads by vectors right in front
# of a text, with no zero between: the text then starts at a multiple of this.
ALIGNMENT = 8

_RUN = re.compile(rb"[ -~]{3,}\0?")
_SCHEMA_NAME = re.compile(rb"(?:\w+::)?\w+(?:\.\w+)?(?=\()", re.ASCII)
_NAME = re.compile(rb"[A-Za-z_]\w{1,79}", re.ASCII)
# Of C++ symbols and types, and CANN's own functions, of which there are thousands.
_FOREIGN = re.compile(rb"_Z|(NK?|St|ZN?)\d|\w*E[EvT]?\w{0,2}\Z|acl\w*[A-Z]", re.ASCII)


def read_library(library: bytes) -> tuple[set[str], set[str]]:
    """Every operator schema, and every name that is a text of its own.

    A schema is ``op.overload(Tensor x) -> Tensor``. Names that are bound for Python are
    among the names; what else there is does no harm.
    """
    names: set[str] = set()
    candidates: list[tuple[bytes, int, bool]] = []
    for start, text, after_zero in _texts(library):
        if b") -> " in text:
            candidates.append((text, start, after_zero))
            continue
        # A linker lets a text be the end of another: of `package.name`, say.
        name = text.rpartition(b".")[2]
        if after_zero and _NAME.fullmatch(name) and not _FOREIGN.match(text):
            names.add(name.decode())
    names |= pointed_names(library)
    schemas = set()
    for text, start, after_zero in candidates:
        schemas |= _schemas(start, text, after_zero, names)
    return schemas, names


def _texts(library: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Each printable run before a zero: where, what, and whether one is before it."""
    for match in _RUN.finditer(library):
        start, end = match.span()
        if library[end - 1] == 0:
            yield start, library[start : end - 1], library[start - 1] == 0


def _schemas(start: int, text: bytes, after_zero: bool, names: set[str]) -> set[str]:
    """The schema that ends a run, without what may be glued in front of it.

    Each operator's name stands in its library by itself too, which tells where it
    begins; where it does not, the whole word is its name.
    """
    match = _SCHEMA_NAME.search(text)
    if match is None:
        return set()
    begin = -(-(start + match.start()) // ALIGNMENT) * ALIGNMENT - start
    # No operator's name begins inside of an overload's.
    end = match.start() + len(match[0].partition(b".")[0])
    places = [*range(begin, end, ALIGNMENT)]
    if after_zero and not match.start():
        places.insert(0, 0)
    for place in places:
        name = text[place : match.end()].decode()
        if name.partition(".")[0].rpartition("::")[2] in names:
            return {text[place:].decode()}
    return {text.decode()} if places[:1] == [0] else set()
