"""Operator schemas, read out of the C++ bindings of a vLLM source.

Bindings name a library, ``TORCH_LIBRARY_FRAGMENT(_C, ops) {``, and define in its braces
``ops.def("name(Tensor x) -> Tensor")``, the string in one or more pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.DOTALL)
_LIBRARY = re.compile(
    r"(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_EXPAND)?\(\s*"
    r"(CONCAT\(\s*TORCH_EXTENSION_NAME\s*,\s*(\w+)\)|\w+)\s*,\s*(\w+)\)\s*\{"
)
_STRING = r'"(?:\\.|[^"\\])*"'


def read_schemas(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Schemas by library, from C++ files by path below ``csrc/``.

    Bindings of a CPU or ROCm build are left out: they define other signatures.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(sources):
        if path.startswith(("csrc/cpu/", "csrc/rocm/")):
            continue
        extension = "_moe_C" if path.startswith("csrc/moe/") else "_C"
        for library, schema in _definitions(sources[path], extension):
            schemas = found.setdefault(library, [])
            if schema not in schemas:
                schemas.append(schema)
    return found


def _definitions(text: str, extension: str) -> Iterator[tuple[str, str]]:
    text = _COMMENT.sub(lambda match: match[1] or " ", text)
    for match in _LIBRARY.finditer(text):
        name, suffix, variable = match.groups()
        library = extension + suffix if suffix else name
        if library == "TORCH_EXTENSION_NAME":
            library = extension
        body = text[match.end() : _end_of_block(text, match.end())]
        define = re.compile(rf"\b{variable}\.def\(\s*({_STRING}(?:\s*{_STRING})*)")
        for call in define.finditer(body):
            pieces = re.findall(_STRING, call[1])
            schema = "".join(piece[1:-1] for piece in pieces)
            # Without a signature it is a C++ function's, which only a build knows.
            if "(" in schema:
                yield library, schema


def _end_of_block(text: str, start: int) -> int:
    depth = 1
    for match in re.finditer(rf"{_STRING}|[{{}}]", text[start:]):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return start + match.start()
    return len(text)
