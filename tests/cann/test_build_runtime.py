"""The builder of the simulated libraries, on a wheel of one function's size."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SIMULATED = Path(__file__).resolve().parent / "simulated"
HEADER = "int aclrtOpen(int device);\nint aclrtClose(int device);\n"
RUNTIME = """
#include <acl/acl.h>
void simulated_missing(const char *name);
void simulated_missing(const char *name) { (void)name; }
int aclrtOpen(int device) { return device + 1; }
"""
PROGRAM = """
import sys
from pathlib import Path
from simulated.build_runtime import BuildError, build
try:
    print(build(*map(Path, sys.argv[1:])))
except BuildError as error:
    sys.exit(f"BuildError: {error}")
"""


class Wheel:
    """A package torch_npu that imports two functions and opens a library by its name.

    The sources have a body for one of the functions.

    ``python`` builds for it in a process of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.sources = folder / "code" / "simulated"
        self.library = folder / "torch_npu" / "lib" / "libtorch_npu.so"
        header = folder / "torch_npu/include/third_party/acl/inc/acl/acl.h"
        for parent in (self.sources, self.library.parent, header.parent):
            parent.mkdir(parents=True)
        (folder / "torch" / "lib").mkdir(parents=True)
        header.write_text(HEADER)
        for name in ("__init__.py", "build_runtime.py", "needed_functions.py"):
            shutil.copy(SIMULATED / name, self.sources)
        (self.sources / "cann_runtime.c").write_text(RUNTIME)
        for name in ("profiler.c", "hccl_runtime.cpp", "allocator_keys.cpp"):
            (self.sources / name).touch()
        caller = folder / "caller.c"
        calls = "int aclrtOpen(int); int aclrtClose(int);\n"
        calls += "int call(int d) { return aclrtOpen(d) + aclrtClose(d); }\n"
        calls += 'const char *opened(void) { return "libascend_hal"; }\n'
        caller.write_text(calls)
        (folder / "none.c").write_text("typedef int none;\n")
        of_cann = folder / "libascendcl.so"
        shared = ("cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o")
        soname = "-Wl,-soname,libascendcl.so"
        subprocess.run([*shared, of_cann, soname, folder / "none.c"], check=True)
        subprocess.run([*shared, self.library, caller, of_cann], check=True)

    def python(self, path: str = os.environ["PATH"]) -> subprocess.Popen[str]:
        folders = [self.folder / "torch_npu", self.folder / "torch", self.cache]
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, folders)],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(self.sources.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def built(self) -> Path:
        out, error = (running := self.python()).communicate()
        assert running.returncode == 0, error
        return Path(out.strip())

    def error(self, path: str = os.environ["PATH"]) -> str:
        _, error = (running := self.python(path)).communicate()
        assert running.returncode == 1, error
        assert error.startswith("BuildError: "), error
        assert not self.half_built()
        return error

    def half_built(self) -> list[str]:
        return [left.name for left in self.cache.glob(".building*")]


@pytest.fixture
def wheel(tmp_path: Path, need: Callable[[bool, str], None]) -> Wheel:
    found = all(shutil.which(tool) for tool in ("cc", "c++", "nm", "readelf"))
    need(found, "no C and C++ compiler with binutils")
    return Wheel(tmp_path)


def only(folder: Path, *tools: str) -> str:
    """A PATH with these tools alone."""
    folder.mkdir()
    for tool in tools:
        (folder / tool).symlink_to(shutil.which(tool) or "")
    return str(folder)


def test_the_report_says_what_has_a_body(wheel: Wheel) -> None:
    folder = wheel.built()
    report = json.loads((folder / "needs.json").read_text())
    assert report["libraries"] == ["libascend_hal.so", "libascendcl.so"]
    assert report["with_a_body"] == ["aclrtOpen"]
    assert report["aborting"] == ["aclrtClose"]
    assert all((folder / name).is_file() for name in report["libraries"])
    assert wheel.built() == folder


@pytest.mark.parametrize(
    ("tools", "absent"),
    [
        (("nm", "c++filt", "readelf", "ldd"), "cc, c++"),
        (("cc", "c++"), "nm, c++filt, readelf, ldd"),
    ],
)
def test_without_a_tool_the_error_says_what_to_install(
    wheel: Wheel, tools: tuple[str, ...], absent: str
) -> None:
    error = wheel.error(only(wheel.folder / "tools", *tools))
    assert f"no {absent} here" in error
    assert "apt-get install build-essential" in error
    assert len(error.splitlines()) == 1


def test_a_built_runtime_needs_no_compiler(wheel: Wheel) -> None:
    folder = wheel.built()
    out, error = wheel.python(only(wheel.folder / "tools")).communicate()
    assert Path(out.strip()) == folder, error


def test_a_missing_wheel_is_named(wheel: Wheel) -> None:
    shutil.rmtree(wheel.folder / "torch_npu")
    assert f"no shared library below {wheel.folder / 'torch_npu'}" in wheel.error()


@pytest.mark.parametrize("share", [0, 0.02, 0.3, 0.6, 0.99])
def test_a_truncated_library_is_named(wheel: Wheel, share: float) -> None:
    whole = wheel.library.read_bytes()
    wheel.library.write_bytes(whole[: int(len(whole) * share)])
    error = wheel.error()
    assert f"cannot read {wheel.library}, which may be truncated" in error


def test_missing_headers_are_named(wheel: Wheel) -> None:
    shutil.rmtree(wheel.folder / "torch_npu" / "include")
    assert "acl/acl.h" in wheel.error()


@pytest.mark.parametrize(
    "text",
    [
        "int aclrtOpen(long device)",
        "void aclrtOpen(int device)",
        "int aclrtOpne(int d)",
    ],
)
def test_a_body_that_the_headers_do_not_declare_so_is_named(
    wheel: Wheel, text: str
) -> None:
    body = f"\n{text} {{ __builtin_trap(); }}\n"
    source = RUNTIME.replace("int aclrtOpen(int device) { return device + 1; }", body)
    (wheel.sources / "cann_runtime.c").write_text(source)
    assert text.partition("(")[0].split()[1] in wheel.error()


def test_two_builds_at_once_give_one_whole_folder(wheel: Wheel) -> None:
    both = [wheel.python() for _ in range(2)]
    folders = {running.communicate()[0].strip() for running in both}
    assert [running.returncode for running in both] == [0, 0]
    assert folders == {str(wheel.built())}
    assert not wheel.half_built()


def test_a_killed_build_leaves_nothing_that_the_next_one_uses(wheel: Wheel) -> None:
    tools = wheel.folder / "slow"
    path = f"{only(tools)}:{os.environ['PATH']}"
    reached = wheel.folder / "reached"
    # The link of the core library, after all compiling.
    script = f'#!/bin/sh\ncase "$*" in *-shared*) echo > {reached}; sleep 60;; esac\n'
    (tools / "c++").write_text(f'{script}exec {shutil.which("c++")} "$@"\n')
    (tools / "c++").chmod(0o755)
    running = wheel.python(path)
    limit = time.monotonic() + 30
    while not reached.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    os.killpg(running.pid, 9)
    running.communicate()
    assert len(wheel.half_built()) == 1
    folder = wheel.built()
    assert (folder / "needs.json").is_file()
    assert not wheel.half_built()


@pytest.mark.parametrize("name", ["needs.json", "libascendcl.so"])
def test_a_folder_that_lost_a_file_is_built_anew(wheel: Wheel, name: str) -> None:
    folder = wheel.built()
    (folder / name).unlink()
    assert wheel.built() == folder
    assert (folder / name).is_file()
