"""Builds the simulated CANN libraries that a torch_npu wheel needs, into the cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from simulated.needed_functions import Needs, UnreadableLibrary, needs_of

HERE = Path(__file__).resolve().parent
_SOURCES = ("cann_runtime.c", "profiler.c", "hccl_runtime.cpp", "allocator_keys.cpp")
_CORE = "libsimulated_cann.so"
_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wmissing-declarations")
# Written last, so a folder with it is whole unless somebody removed files.
_REPORT = "needs.json"
_TOOLS = ("cc", "c++", "nm", "c++filt", "readelf", "ldd")
_DEFINED = re.compile(r"^[0-9a-f]+ T (\w+)$", re.MULTILINE)


class BuildError(Exception):
    """A library could not be built: what is missing, or the compiler's own words."""


def build(torch_npu: Path, torch: Path, cache: Path) -> Path:
    """The folder with the libraries for the packages ``torch_npu`` and ``torch``.

    Made once for each pair and each text of the sources here, below ``cache``, with the
    system's C and C++ compilers; about 6 s. ``needs.json`` in it says what is needed
    and which of it has a body. Raises BuildError without a compiler or binutils, with a
    wheel that cannot be read, and with the compiler's message.
    """
    recipe = hashlib.sha256()
    for name in (*_SOURCES, Path(__file__).name, "needed_functions.py"):
        recipe.update((HERE / name).read_bytes())
    for library in sorted(torch_npu.rglob("*.so")):
        state = library.stat()
        recipe.update(f"{library} {state.st_size} {state.st_mtime_ns}".encode())
    folder = cache / recipe.hexdigest()[:16]
    if _is_whole(folder):
        return folder
    if absent := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        raise BuildError(
            f"no {', '.join(absent)} here: install a C and a C++ compiler and binutils "
            "(Debian: apt-get install build-essential)"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(cache):
        if _is_whole(folder):
            return folder
        # Of a build that was killed, or with files removed.
        for left in (folder, *cache.glob(f".building-{folder.name}-*")):
            shutil.rmtree(left, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix=f".building-{folder.name}-", dir=cache))
        try:
            try:
                needs = needs_of(torch_npu, torch)
            except UnreadableLibrary as error:
                raise BuildError(str(error)) from None
            _build_into(made, needs, torch_npu / "include")
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def _is_whole(folder: Path) -> bool:
    try:
        libraries = json.loads((folder / _REPORT).read_text())["libraries"]
    except (OSError, ValueError, KeyError):
        return False
    return all((folder / name).is_file() for name in (_CORE, *libraries))


@contextlib.contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_into(folder: Path, needs: Needs, headers: Path) -> None:
    objects = [_compile(HERE / name, folder, headers) for name in _SOURCES]
    bodies = {name for file in objects for name in _functions(file)}
    missing = sorted(set(needs.imports) - bodies)
    (folder / "missing.S").write_text(_assembly(missing))
    core = [*map(str, objects), str(folder / "missing.S")]
    _run(
        "c++", "-shared", f"-Wl,-soname,{_CORE}", "-o", _CORE, *core, "-ldl", at=folder
    )
    (folder / "none.c").write_text("typedef int none;\n")
    link = ("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", "-L.", "-lsimulated_cann")
    for library in needs.libraries:
        name = ("-Wl,-soname," + library, "-o", library)
        _run("cc", "-shared", "-fPIC", *name, "none.c", *link, at=folder)
    report = {
        "libraries": needs.libraries,
        "with_a_body": sorted(bodies & {*needs.imports, *needs.looked_up}),
        "aborting": missing,
        "absent_if_looked_up": sorted(set(needs.looked_up) - bodies),
    }
    (folder / _REPORT).write_text(json.dumps(report, indent=1) + "\n")


def _compile(source: Path, folder: Path, headers: Path) -> Path:
    out = folder / f"{source.name}.o"
    include = (f"-I{headers}/third_party/acl/inc", f"-I{headers}/third_party/hccl/inc")
    # A function that no header declares, or declares otherwise, is an error.
    common = ("-O1", "-fPIC", *_WARNINGS, "-isystem", str(headers), *include)
    kind = ("cc", "-std=gnu11") if source.suffix == ".c" else ("c++", "-std=c++17")
    _run(*kind, *common, "-c", str(source), "-o", str(out), at=folder)
    return out


def _functions(file: Path) -> list[str]:
    done = subprocess.run(
        ["nm", "--defined-only", str(file)], capture_output=True, text=True, check=True
    )
    return _DEFINED.findall(done.stdout)


def _assembly(names: list[str]) -> str:
    """Functions that end the process by their own name, whatever their type."""
    readable = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    load = {
        "x86_64": "lea .Lname{n}(%rip), %rdi\n\tjmp simulated_missing@PLT",
        "aarch64": "adrp x0, .Lname{n}\n\tadd x0, x0, :lo12:.Lname{n}\n"
        "\tb simulated_missing",
    }[os.uname().machine]
    lines = ["\t.text"]
    for n, name in enumerate(names):
        lines.append(f"\t.globl {name}\n\t.type {name},%function\n{name}:")
        lines.append("\t" + load.format(n=n))
    lines.append("\t.section .rodata")
    for n, name in enumerate(readable):
        lines.append(f'.Lname{n}:\n\t.asciz "{name}"')
    lines.append('\t.section .note.GNU-stack,"",%progbits\n')
    return "\n".join(lines)


def _run(*command: str, at: Path) -> None:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command[:1])} failed:\n{done.stderr.strip()}")
