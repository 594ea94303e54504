"""Runs in a patched image, by its own Python: hashes, bytecode, imports, version.

The specification is JSON in ``spec.json`` beside this file: ``root``, the folder that
holds ``vllm/``, and ``files``, path by path the SHA-256 it must have.
"""

import hashlib
import importlib
import json
import sys
import traceback
from pathlib import Path

from result import give


def check(root: Path, files: dict[str, str]) -> dict:
    wrong, broken, failed = [], [], []
    for path, wanted in files.items():
        data = (root / path).read_bytes() if (root / path).is_file() else b""
        if hashlib.sha256(data).hexdigest() != wanted:
            wrong.append(path)
        try:
            compile(data, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            broken.append(f"{path}: {error}")
    modules = [path.removesuffix(".py").replace("/", ".") for path in files]
    for name in modules:
        try:
            module = importlib.import_module(name)
        except Exception:
            failed.append(f"{name}: {traceback.format_exc(limit=-1).strip()}")
        else:
            if Path(module.__file__).resolve() != (root / _file(name)).resolve():
                failed.append(f"{name}: came from {module.__file__}")
    from vllm.version import __version__

    return {
        "version": __version__,
        "python": sys.version.split()[0],
        "wrong_hash": wrong,
        "not_compiled": broken,
        "not_imported": failed,
        "files": len(files),
        "modules": modules,
    }


def _file(name: str) -> str:
    return f"{name.replace('.', '/')}.py"


spec = json.loads(Path(__file__).with_name("spec.json").read_text())
give(check(Path(spec["root"]), spec["files"]))
