"""The syntax that ``npu_values`` reads: names, classes, and what is bound to names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from patchkit.wheel_modules import dotted

UNSURE = "?"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TORCH_NPU = re.compile(r"^torch\.npu\b")
_ROOTS = ("torch_npu", "torch.ops.npu", "torch.ops.atb")
_IMPORTING = {"import_module", "__import__", "importorskip"}
_BINDING = (
    *(ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.NamedExpr),
    *(ast.For, ast.AsyncFor, ast.comprehension, ast.withitem, ast.Return),
    *(ast.Global, ast.Nonlocal, ast.ExceptHandler, *FUNCTIONS),
)
_WITH_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
# What has a scope of its own, or binds nothing.
_CLOSED = (*FUNCTIONS, ast.ClassDef, ast.Lambda, ast.Name, ast.Constant)

Scope = dict[str, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef
Assigning = ast.Assign | ast.AnnAssign | ast.NamedExpr


@dataclass
class OwnClass:
    """A class of the source: ``base`` is a class of torch_npu, "" for others."""

    node: ast.ClassDef
    base: str = ""
    methods: dict[str, Function] = field(default_factory=dict)
    properties: set[str] = field(default_factory=set)
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


def ways(node: ast.expr | None) -> list[ast.expr]:
    """The expressions whose value this one has, by itself or as one of them."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return node.values
    return [node.value] if isinstance(node, (ast.NamedExpr, ast.Await)) else []


def _targets(node: Assigning) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


Pair = tuple[ast.expr, ast.expr | None]


def assigned_pairs(node: Assigning) -> Iterator[Pair]:
    """Each target and what it is given, those in tuples too."""
    for target in _targets(node):
        yield from pairs(target, node.value)


def pairs(target: ast.expr, value: ast.expr | None) -> Iterator[Pair]:
    """As ``assigned_pairs``, of one target."""
    left: list[Pair] = [(target, value)]
    while left:
        target, given = left.pop(0)
        if isinstance(target, (ast.Tuple, ast.List)):
            values: list[ast.expr | None] = [None] * len(target.elts)
            if isinstance(given, (ast.Tuple, ast.List)):
                every = [*target.elts, *given.elts]
                if not any(isinstance(each, ast.Starred) for each in every):
                    values = [*given.elts]
            left += zip(target.elts, values, strict=False)
        else:
            yield target, given


def imported(node: ast.Import | ast.ImportFrom) -> Scope:
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


def binding(tree: ast.AST) -> list[ast.AST]:
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


def stored(node: ast.AST) -> list[str]:
    """The names that a binding node gives a value."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [each.asname or each.name.partition(".")[0] for each in node.names]
    if isinstance(node, (ast.ExceptHandler, *FUNCTIONS)):
        return [node.name] if node.name else []
    targets: list[ast.expr | None] = []
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        targets = [*_targets(node)]
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        targets = [node.target]
    elif isinstance(node, ast.withitem):
        targets = [node.optional_vars]
    return [
        inner.id
        for target in targets
        for inner in (ast.walk(target) if target else ())
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    ]


def is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def imported_by_text(node: ast.Call) -> str:
    """The module that a call imports by its name, "" for other calls."""
    name = node.args[0] if node.args else None
    if dotted(node.func).rpartition(".")[2] not in _IMPORTING:
        return ""
    is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return (
        same_name(str(name.value)) if is_text and isinstance(name, ast.Constant) else ""
    )


def joined(values: Iterable[str | None]) -> str | None:
    """The value of what has one of these; what is not of torch_npu is left out."""
    found = {value for value in values if value}
    return found.pop() if len(found) == 1 else UNSURE if found else None


def one_of(value: str | None) -> str | None:
    return value[2:] if value and value[:2] in ("[]", "{}") else None


def learn(scope: Scope, name: str, value: str | None) -> None:
    if value:
        known = scope.get(name) or value
        scope[name] = value
        if known != value:
            scope[name] = UNSURE


def local_classes(
    functions: Iterable[Function],
) -> Iterator[tuple[Function, ast.ClassDef]]:
    """The classes that functions make, each with the function around it."""
    for function in functions:
        left: list[ast.AST] = [*function.body]
        while left:
            node = left.pop()
            if isinstance(node, ast.ClassDef):
                yield function, node
            elif not isinstance(node, FUNCTIONS):
                children = ast.iter_child_nodes(node)
                left += [
                    each for each in children if isinstance(each, _WITH_STATEMENTS)
                ]
