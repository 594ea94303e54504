"""Uses of torch_npu that were found in a source before, kept in the cache."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from patchkit.cache import cache_folder, read_sealed, write_sealed
from patchkit.npu_uses import Use, find_uses
from patchkit.signatures import CallShape

# What finds them: any change to one of these files makes all that was kept useless.
_READERS = (
    *("kept_uses.py", "npu_calls.py", "npu_syntax.py", "npu_uses.py"),
    *("npu_values.py", "signatures.py", "wheel_modules.py"),
)


def kept_uses(source: bytes) -> list[Use]:
    """As ``find_uses``, which reads a source of 30 KB in some 80 ms: once each.

    Raises SyntaxError or ValueError for what is no Python, and EnvironmentProblem
    when the cache cannot be written.
    """
    name = f"{hashlib.sha256(source).hexdigest()}-{_readers_digest()}.json"
    path = cache_folder("npu_uses") / name
    if (text := read_sealed(path)) is not None:
        return [_use(entry) for entry in json.loads(text)]
    uses = find_uses(source)
    write_sealed(path, json.dumps([asdict(use) for use in uses]).encode())
    return uses


def _use(entry: dict[str, Any]) -> Use:
    if entry["call"] is not None:
        parts: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in entry["call"].items()
        }
        entry["call"] = CallShape(**parts)
    return Use(**entry)


@cache
def _readers_digest() -> str:
    """Of the code that finds uses, and of the Python whose parser it asks."""
    found = hashlib.sha256(repr(sys.version_info).encode())
    for name in _READERS:
        found.update(Path(__file__).with_name(name).read_bytes())
    return found.hexdigest()[:16]
