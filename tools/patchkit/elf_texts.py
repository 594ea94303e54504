"""The texts that a shared library's tables point to, by its relocations.

Names that are bound for Python by a table of C stand there. A linker keeps a text that
is the end of another one inside of it, where only the pointer tells that it is one.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_RELOC_TYPE_AARCH64, ENUM_RELOC_TYPE_x64

# What pyelftools gives as an object each, and there are some hundred thousand.
_RELOCATION = struct.Struct("<QQq")
# An address inside of the library itself.
_RELATIVE = {
    "EM_X86_64": ENUM_RELOC_TYPE_x64["R_X86_64_RELATIVE"],
    "EM_AARCH64": ENUM_RELOC_TYPE_AARCH64["R_AARCH64_RELATIVE"],
}
_NAME = re.compile(rb"([A-Za-z_]\w{1,79})\0", re.ASCII)


def pointed_names(library: bytes) -> set[str]:
    """Every such text that is a name; none for what is no library of these machines."""
    try:
        return set(_pointed_names(library))
    except (ELFError, struct.error, OverflowError):
        return set()


def _pointed_names(library: bytes) -> Iterator[str]:
    elf = ELFFile(io.BytesIO(library))
    relative = _RELATIVE.get(elf["e_machine"])
    if relative is None or elf.elfclass != 64 or not elf.little_endian:
        return
    texts = [
        (start, start + section["sh_size"], section["sh_offset"] - start)
        for section in elf.iter_sections("SHT_PROGBITS")
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC
        and not section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR
        for start in [section["sh_addr"]]
    ]
    for section in elf.iter_sections("SHT_RELA"):
        data = section.data()
        whole = len(data) - len(data) % _RELOCATION.size
        for _, how, target in _RELOCATION.iter_unpack(data[:whole]):
            if how & 0xFFFFFFFF != relative:
                continue
            for begin, end, shift in texts:
                if begin <= target < end and (
                    match := _NAME.match(library, target + shift)
                ):
                    yield match[1].decode()
