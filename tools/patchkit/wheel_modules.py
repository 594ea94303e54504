"""The names of a wheel's Python modules, as its sources define them; nothing is run.

A name is a list, which JSON can keep: ``["def", parameters, returned]``,
``["class", bases, attributes]``, ``["is", dotted name]`` or ``["value"]``.
``parameters`` are as ``ast.unparse`` writes them, ``returned`` is what the function
calls for its result; dotted names are as the module sees them, resolved where they
come from an import.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# Read are the package itself, what it exports its names by, and what users name.
_READ = re.compile(
    r"torch_npu/(?:[^/]+|_init/.+|npu/.+|profiler/[^/]+|utils/[^/]+)\.py"
)
ATB_NAMES = "torch_npu/op_plugin/atb/_atb_ops.py"


@dataclass
class Module:
    """One module: its names, and the modules that it takes all names of."""

    names: dict[str, list[Any]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


def is_read(path: str) -> bool:
    """Whether the names of this file of a wheel are kept."""
    return _READ.fullmatch(path) is not None


def module_name(path: str) -> str:
    """``torch_npu.npu`` for ``torch_npu/npu/__init__.py``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def read_modules(
    files: Mapping[str, bytes],
) -> tuple[dict[str, Module], set[str], set[str]]:
    """The modules by name; every name that they use of ``torch_npu._C``; and the
    schemas of operators that they define.

    Names that one module sets in another are that other's too. Raises
    SyntaxError for a file that is no Python.
    """
    modules: dict[str, Module] = {}
    trees = {}
    for path, data in files.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trees[path] = ast.parse(data)
        modules[module_name(path)] = Module()
    compiled: set[str] = set()
    for path, tree in trees.items():
        _Reader(modules, path, compiled).read(tree)
    defined = {schema for tree in trees.values() for schema in _defined(tree)}
    return modules, compiled, defined


def _defined(tree: ast.Module) -> Iterator[str]:
    """The schemas that a module gives to a ``torch.library.Library("npu", ...)``."""
    libraries = {
        dotted(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and dotted(node.value.func).rpartition(".")[2] == "Library"
        and _first_text(node.value) == "npu"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            owner, _, name = dotted(node.func).rpartition(".")
            schema = _first_text(node)
            if name == "define" and owner in libraries and ") -> " in schema:
                yield schema


def _first_text(node: ast.Call) -> str:
    first = node.args[0] if node.args else None
    is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return str(first.value) if is_text and isinstance(first, ast.Constant) else ""


def constant_texts(data: bytes) -> set[str]:
    """Every text constant of a source."""
    return {
        node.value
        for node in ast.walk(ast.parse(data))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def dotted(node: ast.expr | None) -> str:
    """``a.b.c`` of an expression that is one, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


class _Reader:
    def __init__(
        self, modules: dict[str, Module], path: str, compiled: set[str]
    ) -> None:
        self._modules = modules
        self._compiled = compiled
        self._name = module_name(path)
        is_package = path.endswith("/__init__.py")
        self._package = self._name if is_package else self._name.rpartition(".")[0]
        self._module = modules[self._name]

    def read(self, tree: ast.Module) -> None:
        self._statements(tree.body)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._set_elsewhere(target, node.value)
            elif isinstance(node, ast.Attribute):
                self._note_compiled(self._whole(dotted(node)))
        for kind, *rest in self._module.names.values():
            if kind == "is":
                self._note_compiled(rest[0])

    def _note_compiled(self, name: str) -> None:
        if name.startswith("torch_npu._C."):
            self._compiled |= set(name.split(".")[2:])

    def _statements(self, body: list[ast.stmt]) -> None:
        for node in _flat(body):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._module.names[node.name] = self._function(node)
            elif isinstance(node, ast.ClassDef):
                self._module.names[node.name] = self._class(node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
            elif isinstance(node, ast.Import):
                for each in node.names:
                    name = each.asname or each.name.partition(".")[0]
                    whole = each.name if each.asname else name
                    self._module.names[name] = ["is", whole]
            elif isinstance(node, ast.Assign):
                self._assign(node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._module.names.setdefault(node.target.id, ["value"])

    def _import_from(self, node: ast.ImportFrom) -> None:
        origin = node.module or ""
        if node.level:
            above = self._package.split(".")
            kept = above[: len(above) - node.level + 1]
            origin = ".".join([*kept, *([node.module] if node.module else [])])
        for each in node.names:
            if each.name == "*":
                self._module.stars.append(origin)
            else:
                name = each.asname or each.name
                self._module.names[name] = ["is", f"{origin}.{each.name}"]

    def _assign(self, node: ast.Assign) -> None:
        names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        for name in names:
            is_known = name in self._module.names
            if target := dotted(node.value):
                self._module.names[name] = ["is", self._whole(target)]
            elif not is_known:
                self._module.names[name] = ["value"]
        if "__all__" in names and isinstance(node.value, (ast.List, ast.Tuple)):
            for each in node.value.elts:
                if isinstance(each, ast.Constant):
                    self._module.names.setdefault(str(each.value), ["value"])

    def _set_elsewhere(self, target: ast.expr, value: ast.expr) -> None:
        owner, _, name = dotted(target).rpartition(".")
        owner = owner.replace("torch.npu", "torch_npu.npu")
        if owner != self._name and owner in self._modules:
            whole = self._whole(dotted(value))
            is_known = whole.startswith(("torch_npu.", "torch."))
            entry = ["is", whole] if is_known else ["value"]
            self._modules[owner].names.setdefault(name, entry)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Any]:
        returned = ""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Call):
                returned = self._whole(dotted(inner.value.func))
        return ["def", ast.unparse(node.args), returned]

    def _class(self, node: ast.ClassDef) -> list[Any]:
        attributes: dict[str, Any] = {}
        for each in _flat(node.body):
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                is_static = any(
                    dotted(d) == "staticmethod" for d in each.decorator_list
                )
                attributes[each.name] = [
                    "static" if is_static else "def",
                    *self._function(each)[1:],
                ]
            targets = each.targets if isinstance(each, ast.Assign) else []
            targets = [each.target] if isinstance(each, ast.AnnAssign) else targets
            for target in targets:
                if isinstance(target, ast.Name):
                    attributes[target.id] = ["value"]
        for inner in ast.walk(node):
            if (
                isinstance(inner, ast.Attribute)
                and isinstance(inner.ctx, ast.Store)
                and dotted(inner.value) == "self"
            ):
                attributes.setdefault(inner.attr, ["value"])
        bases = [self._whole(dotted(base)) or "?" for base in node.bases]
        return ["class", bases, attributes]

    def _whole(self, name: str) -> str:
        """A name of this module in full, as far as its imports so far tell."""
        first, dot, rest = name.partition(".")
        known = self._module.names.get(first)
        if known is None:
            return name
        if known[0] == "is":
            return f"{known[1]}{dot}{rest}"
        return f"{self._name}.{name}"


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, and those below an if, a try or a with."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.For)):
            yield from _flat(node.body)
        if isinstance(node, (ast.If, ast.Try)):
            yield from _flat(node.orelse)
        if isinstance(node, ast.Try):
            yield from _flat([s for handler in node.handlers for s in handler.body])
            yield from _flat(node.finalbody)
