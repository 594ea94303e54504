"""A wheel that is laid out as torch_npu's, of a few names."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

FILE = "torch_npu-9.0-cp311-cp311-manylinux_2_28_x86_64.whl"
LIBRARY = "torch_npu/lib/libtorch_npu.so"
ATB = "torch_npu/lib/libop_plugin_atb.so"
FILES: Mapping[str, bytes] = {
    LIBRARY: b"\x7fELF\0npu_scale\0_Handle\0free_memory\0_NPUStreamBase\0"
    b"float8_e4m3fn\0npu_odd\0npu_odd(Tensor) -> Tensor\0"
    b"npu_scale(Tensor x, *, float factor=1.0) -> Tensor\0"
    b"npu_scale.out(Tensor x, *, float factor=1.0, Tensor(a!) out) -> Tensor(a!)\0",
    # The operator's schema begins at a multiple of 8, right behind other text.
    ATB: b"\x7fELF\0\0\0\0_store\0\0ttRmsNormOperati_store(Tensor x, int[2] y) -> ()\0",
    "torch_npu/__init__.py": b"import torch_npu.npu\nfrom torch_npu import profiler\n",
    "torch_npu/npu/__init__.py": b"""
__all__ = ["Stream", "memory"]
from torch_npu._C import _Handle
from .streams import *
from .streams import Stream as Other
from . import utils

def synchronize(device=None): ...
def current_stream(device=None):
    return torch_npu.npu.Stream(device)
def properties(device):
    return torch_npu._C._Handle(device)
""",
    "torch_npu/npu/streams.py": b"""
import torch
import torch_npu
class Stream(torch.Stream):
    def __new__(cls, device=None, *, priority=0): ...
    def wait(self, event): ...
    @staticmethod
    def best(device): ...
class Last(torch_npu.npu.Stream):
    pass
class Bound(torch_npu._C._NPUStreamBase):
    pass
""",
    "torch_npu/npu/utils.py": b"""
from torch_npu._folder.inner import given
own = torch.library.Library("npu", "FRAGMENT")
own.define("npu_defined(Tensor x, *, int n=1) -> Tensor")
other = torch.library.Library("other", "FRAGMENT")
other.define("npu_other(Tensor x) -> Tensor")
def version(module='CANN'): ...
""",
    "torch_npu/_folder/inner.py": b"given = 1\n",
    "torch_npu/profiler/__init__.py": b"",
    "torch_npu/contrib/__init__.py": b"def hidden(): ...\n",
    "torch_npu/utils/patches.py": b"torch_npu.npu.added = synchronize\n",
    "torch_npu/op_plugin/atb/_atb_ops.py": b"NAMES = ['_store', '_gone']\n",
}


def make_wheel(folder: Path, files: Mapping[str, bytes] = FILES) -> Path:
    """The path of the wheel in ``folder``."""
    path = folder / FILE
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return path


def library_with_table(text: bytes, places: Mapping[int, int], machine: int) -> bytes:
    """A 64-bit library of this text, with a table that points into it.

    ``places``: where in the text, and the kind of relocation; ``machine``: as ELF
    numbers them.
    """
    address = 0x1000
    table = b"".join(
        struct.pack("<QQq", 0, kind, address + place) for place, kind in places.items()
    )
    # The last has the sections' names: none.
    sections = [
        (1, 2, address, 64, len(text)),
        (4, 2, 0, 64 + len(text), len(table)),
        (3, 0, 0, 16, 1),
    ]
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHI", 3, machine, 1).ljust(24, b"\0")
    header += struct.pack("<Q", 64 + len(text) + len(table)).ljust(18, b"\0")
    header += struct.pack("<HHH", 64, len(sections), len(sections) - 1)
    described = (struct.pack("<IIQQQQIIQQ", 0, *each, 0, 0, 0, 24) for each in sections)
    return header + text + table + b"".join(described)
