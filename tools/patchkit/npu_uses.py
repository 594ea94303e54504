"""What a source uses of torch_npu: every name and every call, read from its syntax."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.npu_values import (
    UNSURE,
    Function,
    OwnClass,
    Scope,
    Values,
    constant_tables,
    is_npu,
    parsed_annotation,
    same_name,
)
from patchkit.signatures import CallShape
from patchkit.wheel_modules import dotted


@dataclass(frozen=True)
class Use:
    """A name of torch_npu, as ``contract_lookup`` takes it, in lines from 1.

    ``call``: how it is called, None where it is only named. ``doubt``: why what is
    used cannot be told; then ``name`` is the source's text.
    """

    name: str
    first: int
    last: int
    call: CallShape | None = None
    doubt: str = ""


def find_uses(source: bytes | str) -> list[Use]:
    """Every use, in the order of lines; also in annotations and code that are texts.

    Raises SyntaxError for what is no Python.
    """
    tree = ast.parse(source)
    finder = _Finder(tree)
    finder.visit(tree)
    return sorted(dict.fromkeys(finder.uses), key=lambda use: (use.first, use.name))


_Keys = tuple[list[str], list[str]]


class _Finder(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.uses: list[Use] = []
        self._values = Values(tree)
        self._tables = constant_tables(tree)
        self._scopes: list[Scope] = [self._values.module]
        self._class: OwnClass | None = None
        self._function: Function | None = None

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
        self.uses.append(Use(name, node.lineno, last, call, doubt))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer = self._class
        for each in (*node.bases, *node.decorator_list):
            self.visit(each)
        self._class = self._values.classes[node.name]
        for statement in node.body:
            self.visit(statement)
        self._class = outer

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
        self.visit(node.target)
        if node.value:
            self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            name = same_name(each.name)
            if is_npu(name) and "." in name:
                self._add(node, name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            return
        for each in node.names:
            name = same_name(f"{node.module}.{each.name}")
            if each.name == "*" and is_npu(name):
                self._add(node, name, doubt="all names are imported")
            elif is_npu(name):
                self._add(node, name)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Code in a text, as another interpreter is given it."""
        text = node.value
        if not isinstance(text, str) or "torch_npu" not in text or "import" not in text:
            return
        try:
            inner = find_uses(text)
        except (SyntaxError, ValueError):
            return
        for use in inner:
            self._add(node, use.name, use.call, use.doubt)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        value = self._of(node)
        if is_npu(value):
            assert value is not None
            # An attribute of the source's own that has such an object is no use of it.
            if not value.endswith("()"):
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
        if dotted(node.func) == "getattr" and len(node.args) > 1:
            self._getattr(node)
        elif is_npu(value):
            assert value is not None
            self._add(node, value, self._shape(node))
            self._below(node.func)
        else:
            self.visit(node.func)
        for each in node.args:
            self.visit(each)
        for keyword in node.keywords:
            self.visit(keyword.value)

    def _getattr(self, node: ast.Call) -> None:
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

    def _shape(self, node: ast.Call) -> CallShape:
        sure = [keyword.arg for keyword in node.keywords if keyword.arg]
        maybe: list[str] = []
        is_open = False
        for keyword in node.keywords:
            if keyword.arg is None:
                found = self._keywords(keyword.value)
                is_open = is_open or found is None
                if found is not None:
                    sure += found[0]
                    maybe += found[1]
        if is_open:
            self._add(node, ast.unparse(node.func), doubt="** of unknown keywords")
        starred = sum(isinstance(each, ast.Starred) for each in node.args)
        return CallShape(
            len(node.args) - starred,
            tuple(sure),
            tuple(dict.fromkeys(maybe)),
            starred > 0,
            is_open,
        )

    def _keywords(self, node: ast.expr | None) -> _Keys | None:
        """The keys that a dict surely has, and those that it may have."""
        if isinstance(node, ast.Dict):
            pairs = [*zip(node.keys, node.values, strict=True)]
            named = [str(k.value) for k, _ in pairs if isinstance(k, ast.Constant)]
            further = [value for key, value in pairs if key is None]
            is_known = len(named) + len(further) == len(pairs)
            return self._joined(named, further) if is_known else None
        if isinstance(node, ast.Call) and dotted(node.func) == "dict" and not node.args:
            named = [keyword.arg for keyword in node.keywords if keyword.arg]
            further = [each.value for each in node.keywords if each.arg is None]
            return self._joined(named, further)
        if isinstance(node, ast.Call):
            return self._either(self._returned(node.func))
        where: ast.AST | None = None
        if isinstance(node, ast.Name):
            where = self._function
        elif isinstance(node, ast.Attribute) and self._class is not None:
            where = self._class.node
        return self._either(_assigned(where, dotted(node))) if where else None

    def _joined(self, named: list[str], further: list[ast.expr]) -> _Keys | None:
        sure, maybe = [*named], []
        for each in further:
            found = self._keywords(each)
            if found is None:
                return None
            sure += found[0]
            maybe += found[1]
        return sure, maybe

    def _either(self, values: list[ast.expr]) -> _Keys | None:
        found = [self._keywords(value) for value in values]
        every = [[*each[0], *each[1]] for each in found if each is not None]
        if not found or len(every) < len(found):
            return None
        if len(found) == 1:
            return found[0]
        return [], [key for keys in every for key in keys]

    def _returned(self, function: ast.expr) -> list[ast.expr]:
        owner, _, name = dotted(function).rpartition(".")
        if owner not in ("self", "cls") or self._class is None:
            return []
        method = self._class.methods.get(name)
        return [
            node.value
            for node in (ast.walk(method) if method else ())
            if isinstance(node, ast.Return) and node.value is not None
        ]


def _assigned(tree: ast.AST, name: str) -> list[ast.expr]:
    """Every value that is assigned to a dotted name below ``tree``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(dotted(target) == name for target in targets):
                found.append(node.value)
    return found
