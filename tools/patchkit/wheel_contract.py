"""What a wheel of torch_npu offers, read out of it and kept in the cache."""

from __future__ import annotations

import contextlib
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patchkit.cache import cache_folder, read_sealed, write_sealed
from patchkit.errors import EnvironmentProblem
from patchkit.torch_npu_pins import Wheel
from patchkit.wheel_modules import (
    ATB_NAMES,
    Module,
    constant_texts,
    is_read,
    module_name,
    read_modules,
)

FORMAT = 2  # of the JSON; a change of what is read counts it up
# Of what is read of a wheel, unpacked: some 100 MB of libtorch_npu.so at most.
_LARGEST = 1 << 30
# What zipfile and ast raise for a file that is damaged, encrypted, or nested too deep.
_DAMAGE = (
    *(OSError, KeyError, SyntaxError, ValueError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
# The libraries that register operators, and the namespace of each.
NAMESPACES = {
    "torch_npu/lib/libtorch_npu.so": "npu",
    "torch_npu/lib/libop_plugin_atb.so": "atb",
}


@dataclass
class Contract:
    """The operators and names of one wheel.

    ``operators``: namespace, then operator, then its schemas, one an overload.
    ``bound``: names that its libraries may bind for Python; these have no signatures.
    ``atb_names``: operators of ``atb`` that the package has as its own names.
    ``files``: every module that there is, whether read or not.
    """

    label: str
    operators: dict[str, dict[str, list[str]]]
    bound: set[str]
    modules: dict[str, Module]
    atb_names: set[str]
    files: set[str]

    def to_json(self) -> str:
        """The text that ``from_json`` takes."""
        data = {**asdict(self), "modules": {}}
        for name, module in self.modules.items():
            data["modules"][name] = [module.names, module.stars]
        for key in ("bound", "atb_names", "files"):
            data[key] = sorted(data[key])
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> Contract:
        """Raises ValueError, LookupError, TypeError or AttributeError for another."""
        data: dict[str, Any] = json.loads(text)
        data["modules"] = {
            name: Module(*module) for name, module in data["modules"].items()
        }
        for key in ("bound", "atb_names", "files"):
            data[key] = set(data[key])
        return Contract(**data)


def load_contract(wheel: Wheel, *, offline: bool = False) -> Contract:
    """The contract of a pinned wheel, from the cache; read from the wheel once.

    Raises EnvironmentProblem when the wheel cannot be had, or is none.
    """
    path = cache_folder("contracts") / f"{wheel.sha256}-{FORMAT}.json"
    if (text := read_sealed(path)) is not None:
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
            return Contract.from_json(text)
    contract = read_wheel(wheel.fetch(offline=offline), wheel.label)
    write_sealed(path, contract.to_json().encode())
    return contract


def read_wheel(path: Path, label: str) -> Contract:
    """Read a wheel, of which nothing is unpacked or run.

    Raises EnvironmentProblem when it is damaged, or lacks what is read of it.
    """
    # Not needed where the contract is in the cache; its libraries take time to load.
    from patchkit.library_texts import read_library

    operators: dict[str, dict[str, list[str]]] = {}
    bound: set[str] = set()
    try:
        with zipfile.ZipFile(path) as wheel:
            paths = [name for name in wheel.namelist() if name.endswith(".py")]
            _check_size(wheel, [*NAMESPACES, ATB_NAMES, *filter(is_read, paths)])
            for library, namespace in NAMESPACES.items():
                schemas, names = read_library(wheel.read(library))
                bound |= names
                _sort_in(operators, namespace, schemas)
            modules, compiled, defined = read_modules(
                {p: wheel.read(p) for p in paths if is_read(p)}
            )
            _sort_in(operators, "npu", defined)
            atb_names = constant_texts(wheel.read(ATB_NAMES))
    except _DAMAGE as error:
        words = str(error) or type(error).__name__
        raise EnvironmentProblem(
            f"{path}: no wheel of torch_npu: {words}", hint="remove it and try again"
        ) from None
    bound |= _ends_of_texts(bound, compiled - bound)
    files = {module_name(path) for path in paths}
    # A folder may be a package without an __init__.py.
    files |= {name[: dot.start()] for name in files for dot in re.finditer(r"\.", name)}
    return Contract(label, operators, bound, modules, atb_names, files)


def _check_size(wheel: zipfile.ZipFile, names: Sequence[str]) -> None:
    """Raises ValueError for more than a wheel of torch_npu has; no more is unpacked."""
    size = sum(wheel.getinfo(name).file_size for name in names)
    if size > _LARGEST:
        raise ValueError(f"{size} bytes to read, more than {_LARGEST}")


def _ends_of_texts(texts: set[str], names: set[str]) -> set[str]:
    """Those of ``names`` that a linker may have kept as the end of another text.

    Asked for names that the package's own modules use, no others: any short name is
    the end of some text.
    """
    return {name for name in names if any(text.endswith(name) for text in texts)}


def _sort_in(
    operators: dict[str, dict[str, list[str]]], namespace: str, schemas: set[str]
) -> None:
    for schema in sorted(schemas):
        name = schema.partition("(")[0].partition(".")[0]
        own, _, name = name.rpartition("::")
        here = operators.setdefault(own or namespace, {})
        here.setdefault(name, []).append(schema)
