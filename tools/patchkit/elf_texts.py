"""The texts that a shared library's tables point to, by its relocations.

Names that are bound for Python by a table of C stand there. A linker keeps a text that
is the end of another one inside of it, where only the pointer tells that it is one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_SECTION = struct.Struct("<IIQQQQIIQQ")
_RELOCATION = struct.Struct("<QQq")
_RELOCATIONS = 4  # SHT_RELA
_CONTENT = 1  # SHT_PROGBITS
_LOADED, _CODE = 2, 4
# R_X86_64_RELATIVE and R_AARCH64_RELATIVE: an address inside of the library itself.
_RELATIVE = {8, 1027}
_NAME = re.compile(rb"([A-Za-z_]\w{1,79})\0", re.ASCII)


def pointed_names(library: bytes) -> set[str]:
    """Every such text that is a name; none for what is no 64-bit library."""
    try:
        return set(_pointed_names(library))
    except struct.error:
        return set()


def _pointed_names(library: bytes) -> Iterator[str]:
    if library[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", library, 40)
    (count,) = struct.unpack_from("<H", library, 60)
    sections = [
        _SECTION.unpack_from(library, table + number * _SECTION.size)
        for number in range(count)
    ]
    texts = [
        (address, address + size, place - address)
        for _, kind, flags, address, place, size, *_ in sections
        if kind == _CONTENT and flags & _LOADED and not flags & _CODE
    ]
    for _, kind, _, _, place, size, *_ in sections:
        if kind != _RELOCATIONS:
            continue
        data = library[place : place + size - size % _RELOCATION.size]
        for _, how, target in _RELOCATION.iter_unpack(data):
            if how & 0xFFFFFFFF not in _RELATIVE:
                continue
            for begin, end, shift in texts:
                if begin <= target < end and (
                    match := _NAME.match(library, target + shift)
                ):
                    yield match[1].decode()
