#!/usr/bin/env python3
"""Pack releases for a machine with a GPU and no internet: sources, patches, wheels.

What lies in OUT then: wheels/, and for each release a folder with base.tar.gz (vLLM's
Python sources, stand-ins for its compiled kernels, metadata) and patched.tar.gz (the
files that the series changes), and release.json. tests/gpu/on_device.py takes it there.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
sys.path[:0] = [str(PROJECT / "tools"), str(HERE)]

from op_schemas import read_schemas  # noqa: E402

from patchkit.plan import make_plan  # noqa: E402
from patchkit.releases import Release, load_releases  # noqa: E402
from patchkit.series import load_series  # noqa: E402
from patchkit.upstream import fetch_sdist, open_source  # noqa: E402

# Tuning tables and web pages: megabytes of no use here.
_LEFT_OUT = (
    "vllm/model_executor/layers/fused_moe/configs/",
    "vllm/entrypoints/static/",
)
_LEFT_OUT_SUFFIXES = (".png", ".so", ".ico", ".css", ".js")
_CSRC = (".cpp", ".cu", ".cuh", ".h", ".hpp")
_COMPILED = (
    *("vllm/_C.py", "vllm/_C_stable_libtorch.py"),
    *("vllm/_moe_C.py", "vllm/_moe_C_stable_libtorch.py"),
)
_FLASH = ("vllm/vllm_flash_attn/_vllm_fa2_C.py", "vllm/vllm_flash_attn/_vllm_fa3_C.py")
_STAND_INS = ("xgrammar", "llguidance", "outlines_core")
_PLATFORMS = (
    *("manylinux_2_34_x86_64", "manylinux_2_31_x86_64", "manylinux_2_28_x86_64"),
    *("manylinux_2_27_x86_64", "manylinux_2_26_x86_64", "manylinux_2_24_x86_64"),
    *("manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_12_x86_64"),
    *("manylinux_2_5_x86_64", "manylinux1_x86_64"),
)


def pack_release(release: Release, version: str, out: Path) -> None:
    """Write one release's folder below ``out``."""
    archive = fetch_sdist(release.find_sdist(version))
    files: dict[str, bytes] = {}
    bindings: dict[str, str] = {}
    with tarfile.open(archive) as sdist:
        for member in sdist:
            path = member.name.partition("/")[2]
            if not member.isfile():
                continue
            if path.startswith("csrc/") and path.endswith(_CSRC):
                bindings[path] = _read(sdist, member).decode("utf-8", "replace")
            elif path.startswith("vllm/") and not _is_left_out(path):
                files[path] = _read(sdist, member)
    files |= _stand_ins(read_schemas(bindings), version)
    folder = out / version
    folder.mkdir(parents=True, exist_ok=True)
    _write_tar(folder / "base.tar.gz", files)
    series = load_series(release)
    source = open_source(release, version=version, paths=series.paths)
    plan = make_plan(series.patches, source, policy="exact")
    assert plan.state == "apply", plan.findings
    patched = {
        each.path: each.after.data for each in plan.changes if each.after is not None
    }
    _write_tar(folder / "patched.tar.gz", patched)
    entry = {
        "release": release.name,
        "version": version,
        "patch_set": series.digest,
        "torch": release.torch,
    }
    (folder / "release.json").write_text(json.dumps(entry) + "\n")


def fetch_wheels(folder: Path) -> None:
    """Download the wheels of wheels.txt for CPython 3.12 on x86-64 Linux."""
    platforms = [word for each in _PLATFORMS for word in ("--platform", each)]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-q", "--no-deps"),
            *("--disable-pip-version-check", "--only-binary=:all:"),
            *("--python-version", "3.12", "--implementation", "cp", *platforms),
            *("-d", str(folder), "-r", str(HERE / "wheels.txt")),
        ],
        check=True,
    )


def _is_left_out(path: str) -> bool:
    return path.startswith(_LEFT_OUT) or path.endswith(_LEFT_OUT_SUFFIXES)


def _stand_ins(schemas: Mapping[str, list[str]], version: str) -> dict[str, bytes]:
    grammar = (HERE / "shims" / "grammar_stand_in.py").read_bytes()
    info = f"vllm-{version}.dist-info"
    return {
        "vllm/_native_ops.py": (HERE / "shims" / "native_ops.py").read_bytes(),
        "vllm/_op_schemas.json": json.dumps(schemas).encode(),
        **dict.fromkeys(_COMPILED, b"import vllm._native_ops  # noqa: F401\n"),
        **dict.fromkeys(_FLASH, b""),
        **{f"{name}/__init__.py": grammar for name in _STAND_INS},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        "".encode(),
    }


def _read(sdist: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = sdist.extractfile(member)
    assert file is not None
    return file.read()


def _write_tar(path: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=6) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(files[name]))


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and pack."""
    parser = argparse.ArgumentParser(prog="tests/gpu/pack.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=PROJECT / "build" / "gpu")
    parser.add_argument(
        "versions", nargs="+", metavar="V", help="0.25: its newest version; or 0.25.0"
    )
    options = parser.parse_args(argv)
    releases = load_releases()
    for wanted in options.versions:
        release, version = releases.find_version(wanted)
        pack_release(release, version, options.out)
    fetch_wheels(options.out / "wheels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
