"""How a call is written: what it gives by place and by name, also through ``**``."""

from __future__ import annotations

import ast

from patchkit.npu_syntax import Function, OwnClass
from patchkit.signatures import CallShape
from patchkit.wheel_modules import dotted

# What a dict surely has, and what it may have.
_Keys = tuple[list[str], list[str]]
# Methods that change a dict in a way that is not followed.
_CHANGING = {"update", "pop", "popitem", "clear", "setdefault"}


class CallReader:
    """Reads calls in a function (None: the module's own) of a class, if any."""

    def __init__(self, function: Function | None, own: OwnClass | None) -> None:
        self._function = function
        self._own = own

    def shape(self, node: ast.Call, *, is_partial: bool = False) -> CallShape:
        """``is_partial``: of what ``functools.partial`` is given to call later."""
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
        starred = sum(isinstance(each, ast.Starred) for each in node.args)
        return CallShape(
            len(node.args) - starred - is_partial,
            tuple(sure),
            tuple(dict.fromkeys(maybe)),
            starred > 0 or is_partial,
            is_open or is_partial,
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
        elif isinstance(node, ast.Attribute) and self._own is not None:
            where = self._own.node
        if where is None or _is_changed(where, dotted(node)):
            return None
        return self._either(_assigned(where, dotted(node)))

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
        if owner not in ("self", "cls") or self._own is None:
            return []
        method = self._own.methods.get(name)
        return [
            node.value
            for node in (ast.walk(method) if method else ())
            if isinstance(node, ast.Return) and node.value is not None
        ]


def _is_changed(tree: ast.AST, name: str) -> bool:
    """Whether a dict of this name is more than what is assigned to it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == name:
            return True
        if isinstance(node, ast.AugAssign) and dotted(node.target) == name:
            return True
        is_kept = isinstance(getattr(node, "ctx", None), ast.Load)
        item = node.value if isinstance(node, ast.Subscript) and not is_kept else None
        if item and dotted(item) == name:
            return True
        owner, _, method = dotted(getattr(node, "func", None)).rpartition(".")
        if owner == name and method in _CHANGING:
            return True
    return False


def _assigned(tree: ast.AST, name: str) -> list[ast.expr]:
    """Every value that is assigned to a dotted name below ``tree``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(dotted(target) == name for target in targets):
                found.append(node.value)
    return found
