"""What a source uses of torch_npu: every name and every call, read from its syntax."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchkit.npu_calls import CallReader
from patchkit.npu_syntax import (
    FUNCTIONS,
    UNSURE,
    Function,
    OwnClass,
    Scope,
    constant_tables,
    imported_by_text,
    is_npu,
    pairs,
    parsed_annotation,
    same_name,
)
from patchkit.npu_values import Values
from patchkit.signatures import CallShape
from patchkit.wheel_modules import dotted


@dataclass(frozen=True)
class Use:
    """A name of torch_npu, as ``contract_lookup`` takes it, in lines from 1.

    ``call``: how it is called, None where it is only named. ``doubt``: why what is
    used cannot be told; then ``name`` is the source's text. ``is_ready``: the source
    says what to do where there is no such name.
    """

    name: str
    first: int
    last: int
    call: CallShape | None = None
    doubt: str = ""
    is_ready: bool = False


def find_uses(source: bytes | str) -> list[Use]:
    """Every use, in the order of lines; also in annotations and code that are texts.

    Raises SyntaxError for what is no Python.
    """
    tree = ast.parse(source)
    finder = _Finder(tree)
    finder.visit(tree)
    return sorted(dict.fromkeys(finder.found()), key=lambda use: (use.first, use.name))


# Whose names are followed only where they are assigned, or taken from by their name.
_MODULES = {
    *("torch_npu", "torch_npu.npu", "torch_npu.profiler", "torch_npu._C"),
    *("torch.ops.npu", "torch.ops.atb"),
}
_BY_TEXT = {"getattr", "hasattr", "setattr", "delattr"}
_DEFINING = {"define", "custom_op"}
_OPERATOR = re.compile(r"(npu|atb)::(\w+(?:\.\w+)?)")


class _Finder(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.uses: list[Use] = []
        self._values = Values(tree)
        self._tables = constant_tables(tree)
        self._scopes: list[Scope] = [self._values.module]
        self._class: OwnClass | None = None
        self._function: Function | None = None
        self._ready: set[str] = set()
        self._own_names: set[str] = set()
        self._paired: set[ast.expr] = set()
        self._catches: set[str] = set()

    def found(self) -> list[Use]:
        """The uses, without names that the source gives to others itself."""
        return [
            replace(use, is_ready=use.is_ready or _is_below(use.name, self._ready))
            for use in self.uses
            if not _is_below(use.name, self._own_names)
        ]

    def _of(self, node: ast.expr) -> str | None:
        return self._values.of(node, self._scopes, self._class)

    def _add(
        self,
        node: ast.expr | ast.stmt,
        name: str,
        call: CallShape | None = None,
        doubt: str = "",
    ) -> None:
        last = node.end_lineno or node.lineno
        is_ready = "AttributeError" in self._catches
        self.uses.append(Use(name, node.lineno, last, call, doubt, is_ready))

    def _goes(self, *nodes: ast.expr | None) -> None:
        """A module that is handed on: what is taken of it there is not seen."""
        for node in nodes:
            value = self._of(node) if node else None
            if node and node not in self._paired and value in _MODULES:
                self._add(node, ast.unparse(node), doubt="it is handed on as a whole")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer = self._class
        keywords = [keyword.value for keyword in node.keywords]
        for each in (*node.bases, *keywords, *node.decorator_list):
            self.visit(each)
        self._class = self._values.classes[node.name]
        scopes = self._scopes
        inside = self._values.class_scope(node, scopes)
        for statement in node.body:
            is_open = not isinstance(statement, FUNCTIONS)
            self._scopes = [inside, *scopes] if is_open else scopes
            self.visit(statement)
        self._class, self._scopes = outer, scopes

    def visit_FunctionDef(self, node: Function) -> None:
        args = node.args
        every = [
            *args.posonlyargs,
            *args.args,
            *args.kwonlyargs,
            args.vararg,
            args.kwarg,
        ]
        for annotation in (*(each.annotation for each in every if each), node.returns):
            self._annotation(annotation)
        defaults = [*args.defaults, *filter(None, args.kw_defaults)]
        for each in (*node.decorator_list, *defaults):
            self.visit(each)
        own = self._class
        if own is not None and own.methods.get(node.name) is not node:
            own = None
        outer, function = self._scopes, self._function
        self._scopes = [self._values.scope(node, outer, own), *outer]
        self._function = node
        for statement in node.body:
            self.visit(statement)
        self._scopes, self._function = outer, function

    visit_AsyncFunctionDef = visit_FunctionDef

    def _annotation(self, node: ast.expr | None) -> None:
        for inner in ast.walk(node) if node else ():
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                parsed = parsed_annotation(inner)
                if parsed is not None:
                    self.visit(parsed)
        if node:
            self.visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        self._follow([node.target], node.value)
        self.visit(node.target)
        if node.value:
            self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            name = same_name(each.name)
            if is_npu(name) and "." in name:
                self._import(node, name)

    def _import(self, node: ast.stmt, name: str) -> None:
        self._add(node, name)
        if self._catches & {"ImportError", "ModuleNotFoundError"}:
            self._ready.add(name)

    def visit_Try(self, node: ast.Try) -> None:
        outer = self._catches
        caught = {
            dotted(each).rpartition(".")[2]
            for handler in node.handlers
            for each in ast.walk(handler.type or ast.Pass())
            if isinstance(each, ast.expr)
        }
        self._catches = outer | caught
        for statement in node.body:
            self.visit(statement)
        self._catches = outer
        for each in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(each)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            return
        for each in node.names:
            name = same_name(f"{node.module}.{each.name}")
            if each.name == "*" and is_npu(name):
                self._add(node, name, doubt="all names are imported")
            elif is_npu(name):
                self._import(node, name)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Code in a text, as another interpreter is given it."""
        text = node.value
        if isinstance(text, str) and (match := _OPERATOR.fullmatch(text)):
            self._add(node, f"torch.ops.{match[1]}.{match[2]}")
        if not isinstance(text, str) or "torch_npu" not in text or "import" not in text:
            return
        try:
            inner = find_uses(text)
        except (SyntaxError, ValueError):
            return
        for use in inner:
            self._add(node, use.name, use.call, use.doubt)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._follow(node.targets, node.value)
        self.generic_visit(node)

    def _follow(self, targets: list[ast.expr], value: ast.expr | None) -> None:
        """Say where a module is assigned to what ``Values`` does not look at."""
        for target, given in [pair for each in targets for pair in pairs(each, value)]:
            is_followed = isinstance(target, ast.Name) or (
                isinstance(target, ast.Attribute)
                and dotted(target.value) in ("self", "cls")
            )
            if is_followed and given:
                self._paired.add(given)
            elif not is_followed:
                self._goes(given)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        self._goes(node.body, *args.defaults, *args.kw_defaults)
        for default in filter(None, [*args.defaults, *args.kw_defaults]):
            self.visit(default)
        outer = self._scopes
        self._scopes = [{each.arg: "" for each in every}, *outer]
        self.visit(node.body)
        self._scopes = outer

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            self._goes(*node.elts)
        elif isinstance(node, ast.Dict):
            self._goes(*node.values)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            self._goes(node.elt)
        elif isinstance(node, (ast.Return, ast.Yield, ast.Starred)):
            self._goes(node.value)
        elif isinstance(node, ast.Match):
            self._goes(node.subject)
        super().generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        value = self._of(node)
        if is_npu(value):
            assert value is not None
            # An attribute of the source's own that has such an object is no use of it.
            owner = self._of(node.value)
            if isinstance(node.ctx, ast.Store) and is_npu(owner) and "()" in value:
                self._own_names.add(value)
            elif node.attr == "__dict__":
                self._add(node, ast.unparse(node), doubt="its names are not followed")
            elif not value.endswith("()"):
                self._add(node, value)
        elif value == UNSURE == self._of(node.value):
            self._add(node, ast.unparse(node), doubt="it may be one of several")
        self._below(node)

    def _below(self, node: ast.expr) -> None:
        """Visit what an attribute is of, where that is more than a name."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name):
            self.visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        value = self._of(node.func)
        function = dotted(node.func)
        args = [*node.args]
        if function in _BY_TEXT and len(args) > 1:
            self._by_text(node, function)
        elif function.rpartition(".")[2] == "partial" and is_npu(
            called := self._of(args[0]) if args else None
        ):
            self._call(node, args.pop(0), called, is_partial=True)
        elif is_npu(value):
            self._call(node, node.func, value)
        elif value and (made := self._values.made(value)):
            self._call(node, node.func, made)
        else:
            self._imported_by_text(node)
            self.visit(node.func)
        if function.rpartition(".")[2] in _DEFINING and args:
            self._own_operator(args.pop(0))
        if function not in _BY_TEXT:
            self._goes(*args, *(keyword.value for keyword in node.keywords))
        if function.rpartition(".")[2] == "cast" and args:
            self._annotation(args.pop(0))
        for each in args:
            self.visit(each)
        for keyword in node.keywords:
            self.visit(keyword.value)

    def _call(
        self,
        node: ast.Call,
        function: ast.expr,
        value: str | None,
        *,
        is_partial: bool = False,
    ) -> None:
        assert value is not None
        reader = CallReader(self._function, self._class)
        shape = reader.shape(node, is_partial=is_partial)
        if shape.more_keywords and not is_partial:
            self._add(node, ast.unparse(function), doubt="** of unknown keywords")
        self._add(node, value, shape)
        self._below(function)

    def _imported_by_text(self, node: ast.Call) -> None:
        name = self._of(node) or ""
        if "." in name and imported_by_text(node) and is_npu(name):
            self._import(ast.Expr(node, lineno=node.lineno), name)

    def _own_operator(self, node: ast.expr) -> None:
        """An operator that the source defines in torch_npu's namespace."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition("(")[0].rpartition("::")[2].partition(".")[0]
            self._own_names.add(f"torch.ops.npu.{name}")

    def _by_text(self, node: ast.Call, function: str) -> None:
        owner = self._of(node.args[0])
        if not is_npu(owner):
            return
        name = node.args[1]
        names: Sequence[str] = ()
        if isinstance(name, ast.Constant):
            names = [str(name.value)]
        elif isinstance(name, ast.Name):
            names = self._loop_values(name.id)
        for each in names:
            self._add(node, f"{owner}.{each}")
            if function == "hasattr" or (function == "getattr" and len(node.args) > 2):
                self._ready.add(f"{owner}.{each}")
        if not names:
            self._add(node, ast.unparse(node), doubt="the name is not a constant")

    def _loop_values(self, name: str) -> Sequence[str]:
        """What a name stands for that runs over a constant table."""
        for node in ast.walk(self._function) if self._function else ():
            if not isinstance(node, (ast.For, ast.comprehension)):
                continue
            table, _, method = dotted(
                node.iter.func if isinstance(node.iter, ast.Call) else node.iter
            ).partition(".")
            entries = self._tables.get(table, {})
            keys, values = [*entries], [*entries.values()]
            targets = {"items": [keys, values], "values": [values]}.get(method, [keys])
            target = node.target
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            for part, found in zip(parts, targets, strict=False):
                if isinstance(part, ast.Name) and part.id == name and entries:
                    return found
        return ()


def _is_below(name: str, names: set[str]) -> bool:
    return any(
        name == each or name.startswith((f"{each}.", f"{each}(")) for each in names
    )
