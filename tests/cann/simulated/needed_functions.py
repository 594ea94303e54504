"""Which functions of CANN a torch_npu wheel needs, read from its shared libraries.

Imports are what the dynamic linker must find; others are looked up by name while
torch_npu runs, which copes with their absence and says so.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Prefixes of the public interfaces: runtime, collectives, profiler, tensor queues,
# driver.
_LOOKED_UP = re.compile(
    rb"\x00((?:(?:acl|Hccl|hccl|acltdt|aclprof)[A-Z]?|hal[A-Z])\w{3,60})(?=\x00)"
)
# Libraries that torch_npu opens by name: it registers them without their ending.
_OPENED = re.compile(rb"\x00(lib[a-z_]*[a-z])(?=\x00)")
_OF_THE_SYSTEM = ("libc.", "libm.", "libstdc++.", "libgcc_s.", "libpthread.", "libdl.")
_SYSTEM = re.compile(r"\s(lib[\w+.-]+)\s=>\s(/\S+)")


class UnreadableLibrary(Exception):
    """A package without a library, or with one that is no whole library."""


@dataclass(frozen=True)
class Needs:
    """What the libraries of one wheel ask of CANN, sorted.

    ``libraries`` are sonames, linked or opened while torch_npu runs; ``imports``
    symbols, mangled where they are C++; ``looked_up`` are names for dlsym. What is
    opened or looked up is found as whole strings, so a few may be none.
    """

    libraries: tuple[str, ...]
    imports: tuple[str, ...]
    looked_up: tuple[str, ...]


def needs_of(torch_npu: Path, torch: Path) -> Needs:
    """The needs of the package folder ``torch_npu`` beside the package ``torch``.

    Raises UnreadableLibrary when there is no library below ``torch_npu``, or binutils
    cannot read one.
    """
    own = sorted(torch_npu.rglob("*.so"))
    if not own:
        raise UnreadableLibrary(
            f"no shared library below {torch_npu}: torch_npu is not installed there"
        )
    of_torch = sorted((torch / "lib").glob("lib*.so*"))
    there = {file.name for file in [*own, *of_torch]}
    opened = {f"{name}.so" for name in _texts(_OPENED, own)}
    libraries = {
        name
        for name in opened.union(*map(_linked, own))
        if name not in there and not name.startswith((*_OF_THE_SYSTEM, "ld-", "librt."))
    }
    wanted = {name for file in own for name in _symbols(file, "--undefined-only")}
    torch_itself = [
        f for f in of_torch if f.name.startswith(("libtorch", "libc10", "libshm"))
    ]
    given = {
        name
        for file in [*own, *torch_itself, *_system_libraries(own)]
        for name in _symbols(file, "--defined-only")
    }
    imports = {
        name
        for name in wanted - given
        # The interpreter gives these; nm of a stripped one does not list them.
        if not name.startswith(("Py", "_Py"))
    }
    looked_up = _texts(_LOOKED_UP, own) - imports
    return Needs(
        tuple(sorted(libraries)), tuple(sorted(imports)), tuple(sorted(looked_up))
    )


def _texts(pattern: re.Pattern[bytes], files: Iterable[Path]) -> set[str]:
    return {
        found[1].decode()
        for file in files
        for found in pattern.finditer(file.read_bytes())
    }


def _linked(file: Path) -> list[str]:
    return re.findall(r"NEEDED.*\[(.*?)\]", _output("readelf", "-dW", str(file)))


def _symbols(file: Path, which: str) -> Iterator[str]:
    """Names without versions; weak undefined ones may be missing and are left out."""
    for line in _output("nm", "-D", which, str(file)).splitlines():
        *_, kind, name = line.split()
        if kind not in ("w", "v") or which == "--defined-only":
            yield name.partition("@")[0]


def _system_libraries(files: Iterable[Path]) -> set[Path]:
    found: dict[str, Path] = {}
    for file in files:
        linked = _output("ldd", str(file))
        for path in re.findall(r"^\s+(/\S*ld-linux\S*)", linked, re.MULTILINE):
            found["ld"] = Path(path)
        for name, path in _SYSTEM.findall(linked):
            if name.startswith((*_OF_THE_SYSTEM, "librt.", "libutil.", "ld-")):
                found[name] = Path(path)
        for path in re.findall(
            r"^\s+(/\S*ld-linux\S*)", _output("ldd", str(file)), re.M
        ):
            found["ld"] = Path(path)
    return set(found.values())


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # readelf shows what it can of a truncated file, and says so.
    if done.returncode or "readelf: Error" in done.stderr:
        raise UnreadableLibrary(
            f"{command[0]} cannot read {command[-1]}, which may be truncated; "
            f"install its package anew:\n{done.stderr.strip()}"
        )
    return done.stdout
