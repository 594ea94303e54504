"""What expressions of one source stand for, as far as torch_npu is concerned.

A value is a text. ``torch_npu.npu.Event`` is a name of torch_npu, with ``()`` what it
returns or makes; ``@C`` is a class of the source and ``@C()`` an object of it; ``[]``
in front of a value means several of it; ``?`` may be one of several. None is anything
else. Assignments count wherever they stand in a function: order is not looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from patchkit.wheel_modules import dotted

UNSURE = "?"
_TORCH_NPU = re.compile(r"^torch\.npu\b")
_ROOTS = ("torch_npu", "torch.ops.npu", "torch.ops.atb")
_WRAPPERS = {"Optional", "ClassVar", "Final", "Annotated"}
_SEVERAL = {"list", "List", "Sequence", "Iterable", "Iterator", "tuple", "set", "deque"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BINDING = (
    *(ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.NamedExpr),
    *(ast.For, ast.comprehension, ast.withitem),
)
# What has a scope of its own, or binds nothing.
_CLOSED = (*_FUNCTIONS, ast.ClassDef, ast.Lambda, ast.Name, ast.Constant)
# Each round may tell what another one needs.
_ROUNDS = 3

Scope = dict[str, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class OwnClass:
    """A class of the source: ``base`` is a class of torch_npu, "" for others."""

    node: ast.ClassDef
    base: str = ""
    methods: dict[str, Function] = field(default_factory=dict)
    fields: list[str] = field(default_factory=list)
    attributes: Scope = field(default_factory=dict)
    own: set[str] = field(default_factory=set)


def is_npu(value: str | None) -> bool:
    """Whether it is a name of torch_npu, or comes from one."""
    return value is not None and any(
        value == root or value.startswith((f"{root}.", f"{root}(")) for root in _ROOTS
    )


def same_name(name: str) -> str:
    """``torch_npu.npu`` for ``torch.npu``, which is the same module."""
    return _TORCH_NPU.sub("torch_npu.npu", name)


def parsed_annotation(node: ast.Constant) -> ast.expr | None:
    """The expression in an annotation that is a text; None where it is none."""
    try:
        found = ast.parse(str(node.value), mode="eval").body
    except SyntaxError:
        return None
    for inner in ast.walk(found):
        ast.copy_location(inner, node)
    return found


class Values:
    """The classes and scopes of one parsed source."""

    def __init__(self, tree: ast.Module) -> None:
        self.classes: dict[str, OwnClass] = {}
        self.module: Scope = {}
        self._bindings: dict[ast.AST, list[ast.AST]] = {}
        self._known: dict[tuple[Function, int], Scope] = {}
        self._fill(self.module, tree, [self.module])
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self._add_class(node)
        functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
        before = None
        for _ in range(_ROUNDS):
            known = {name: dict(c.attributes) for name, c in self.classes.items()}
            if known == before:
                break
            before = known
            self._known.clear()
            self._fill(self.module, tree, [self.module])
            for own in self.classes.values():
                self._learn(own)
            if any(own.fields for own in self.classes.values()):
                for function in functions:
                    self._learn_fields(function)

    def scope(self, node: Function, outer: list[Scope], own: OwnClass | None) -> Scope:
        """The names of a function, with those of its parameters."""
        if (node, len(outer)) in self._known:
            return self._known[node, len(outer)]
        inside = self._known[node, len(outer)] = {}
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        scopes = [inside, *outer]
        for number, each in enumerate(every):
            value = self.annotation(each.annotation, scopes)
            decorators = {dotted(d) for d in node.decorator_list}
            if own is not None and number == 0 and "staticmethod" not in decorators:
                is_class = "classmethod" in decorators
                value = f"@{own.node.name}" + ("" if is_class else "()")
            if value:
                inside[each.arg] = value
        for _ in range(2):
            self._fill(inside, node, scopes)
        return inside

    def of(
        self, node: ast.expr | None, scopes: list[Scope], own: OwnClass | None = None
    ) -> str | None:
        """The value of an expression in these scopes, the innermost first."""
        if isinstance(node, ast.Name):
            found = next((s[node.id] for s in scopes if node.id in s), None)
            return found or (f"@{node.id}" if node.id in self.classes else None)
        if isinstance(node, ast.Attribute):
            return self._attribute(self.of(node.value, scopes, own), node.attr)
        if isinstance(node, ast.Call):
            return self._called(node, scopes, own)
        return None

    def _attribute(self, base: str | None, name: str) -> str | None:
        if base is None or base.startswith("[]"):
            return None
        if base == UNSURE:
            return UNSURE
        if not base.startswith("@"):
            return same_name(f"{base}.{name}")
        own = self.classes[base[1:].removesuffix("()")]
        if name in own.attributes:
            return own.attributes[name]
        if own.base and name not in own.own:
            return f"{own.base}{'()' if base.endswith('()') else ''}.{name}"
        return None

    def _called(
        self, node: ast.Call, scopes: list[Scope], own: OwnClass | None
    ) -> str | None:
        function = dotted(node.func)
        if function == "super":
            return f"{own.base}()" if own is not None and own.base else None
        if function == "getattr" and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant):
                owner = self.of(node.args[0], scopes, own)
                return self._attribute(owner, str(name.value))
            return None
        value = self.of(node.func, scopes, own)
        if value is None or value == UNSURE:
            return value
        is_class = value.startswith("@") and not value.endswith("()")
        return f"{value}()" if is_class or is_npu(value) else None

    def annotation(self, node: ast.expr | None, scopes: list[Scope]) -> str | None:
        """The value that a name with this annotation has."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.annotation(parsed_annotation(node), scopes)
        if isinstance(node, ast.BinOp):
            left = self.annotation(node.left, scopes)
            return left or self.annotation(node.right, scopes)
        if isinstance(node, ast.Subscript):
            head = dotted(node.value).rpartition(".")[2]
            first = (
                node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            )
            inner = self.annotation(first, scopes)
            if inner and head in _SEVERAL:
                return f"[]{inner}"
            return inner if head in _WRAPPERS else None
        value = self.of(node, scopes)
        if value and (is_npu(value) or value.startswith("@")):
            return f"{value}()"
        return None

    def _fill(self, scope: Scope, tree: ast.AST, scopes: list[Scope]) -> None:
        """Learn names from the statements below ``tree``, other scopes left out."""
        if tree not in self._bindings:
            self._bindings[tree] = _binding(tree)
        for node in self._bindings[tree]:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                scope.update(_imported(node))
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                value = self._assigned(node, scopes)
                for target in _targets(node):
                    if isinstance(target, ast.Name):
                        _learn(scope, target.id, value)
            elif isinstance(node, (ast.For, ast.comprehension)):
                value = self.of(node.iter, scopes)
                if isinstance(node.target, ast.Name) and value and value[:2] == "[]":
                    _learn(scope, node.target.id, value[2:])
            elif isinstance(node, ast.withitem) and isinstance(
                node.optional_vars, ast.Name
            ):
                value = self.of(node.context_expr, scopes)
                _learn(scope, node.optional_vars.id, value)

    def _assigned(
        self,
        node: ast.Assign | ast.AnnAssign | ast.NamedExpr,
        scopes: list[Scope],
        own: OwnClass | None = None,
    ) -> str | None:
        value = self.of(node.value, scopes, own)
        if isinstance(node, ast.AnnAssign):
            return self.annotation(node.annotation, scopes) or value
        return value

    def _add_class(self, node: ast.ClassDef) -> None:
        own = OwnClass(node)
        bases = (self.of(base, [self.module]) for base in node.bases)
        own.base = next((base for base in bases if base and is_npu(base)), "")
        for each in node.body:
            if isinstance(each, _FUNCTIONS):
                own.methods[each.name] = each
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                own.fields.append(each.target.id)
                own.own.add(each.target.id)
            elif isinstance(each, ast.Assign):
                own.own |= {t.id for t in each.targets if isinstance(t, ast.Name)}
        own.own |= set(own.methods)
        self.classes[node.name] = own

    def _learn(self, own: OwnClass) -> None:
        """What the class's attributes are, by annotations and assignments."""
        for each in own.node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                value = self.annotation(each.annotation, [self.module])
                _learn(own.attributes, each.target.id, value)
        for method in own.methods.values():
            scopes = [self.scope(method, [self.module], own), self.module]
            for node in ast.walk(method):
                if not isinstance(node, (ast.Assign, ast.AnnAssign)):
                    continue
                value = self._assigned(node, scopes, own)
                for target in _targets(node):
                    if isinstance(target, ast.Attribute):
                        owner = self.of(target.value, scopes, own) or ""
                        if owner.removesuffix("()") == f"@{own.node.name}":
                            own.own.add(target.attr)
                            _learn(own.attributes, target.attr, value)

    def _learn_fields(self, function: Function) -> None:
        """What the fields of own classes are given where an object is made."""
        owner = next(
            (c for c in self.classes.values() if function in c.methods.values()), None
        )
        scopes = [self.scope(function, [self.module], owner), self.module]
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            made = self.classes.get(dotted(node.func))
            if made is None or "__init__" in made.methods:
                continue
            pairs = [*zip(made.fields, node.args, strict=False)]
            pairs += [(k.arg, k.value) for k in node.keywords if k.arg]
            for name, value in pairs:
                _learn(made.attributes, name, self.of(value, scopes, owner))


def _targets(node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _imported(node: ast.Import | ast.ImportFrom) -> Scope:
    """The names that an import gives, as far as they may have to do with torch_npu."""
    roots = ("torch", "torch_npu")
    found = {}
    for each in node.names:
        if isinstance(node, ast.Import):
            first = each.name.partition(".")[0]
            if first in roots:
                name = each.name if each.asname else first
                found[each.asname or first] = same_name(name)
        elif not node.level and (node.module or "").partition(".")[0] in roots:
            name = f"{node.module}.{each.name}"
            found[each.asname or each.name] = same_name(name)
    return found


def _learn(scope: Scope, name: str, value: str | None) -> None:
    if value is not None:
        known = scope.setdefault(name, value)
        if known != value:
            scope[name] = UNSURE


def _binding(tree: ast.AST) -> list[ast.AST]:
    """The nodes below that bind names, without those of functions and classes in it."""
    found: list[ast.AST] = []
    left = [*ast.iter_child_nodes(tree)]
    while left:
        node = left.pop()
        if isinstance(node, _BINDING):
            found.append(node)
        if not isinstance(node, _CLOSED):
            left += ast.iter_child_nodes(node)
    found.reverse()
    return found


def constant_tables(tree: ast.Module) -> Mapping[str, dict[str, str]]:
    """The module's dicts whose keys and values are all texts, by name."""
    found = {}
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        value = node.value
        if not isinstance(value, ast.Dict):
            continue
        pairs = [*zip(value.keys, value.values, strict=True)]
        if all(isinstance(each, ast.Constant) for pair in pairs for each in pair):
            for target in _targets(node):
                if isinstance(target, ast.Name):
                    found[target.id] = ast.literal_eval(value)
    return found
