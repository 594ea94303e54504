"""Words and blocks at host addresses."""

from __future__ import annotations

import ctypes


def word_at(address: int) -> ctypes.c_uint64:
    """The 64-bit word at ``address``, to read and to write."""
    return ctypes.c_uint64.from_address(address)


def store(address: int, value: int) -> None:
    """Write a handle to where a C caller wants it."""
    word_at(address).value = value


def move_bytes(to: int, source: int, size: int) -> None:
    ctypes.memmove(to, source, size)


def fill_bytes(to: int, byte: int, size: int) -> None:
    ctypes.memset(to, byte, size)
