"""What expressions of one source stand for, as far as torch_npu is concerned.

A value is a text. ``torch_npu.npu.Event`` is a name of torch_npu, with ``()`` what it
returns or makes; ``@C`` is a class of the source and ``@C()`` an object of it; ``[]``
in front of a value means several of it, and ``{}`` several by keys; ``?`` may be one
of several. "" and None are anything else. Assignments count wherever they stand in a
function: order is not looked at.
"""

from __future__ import annotations

import ast
import re

from patchkit.npu_syntax import (
    FUNCTIONS,
    UNSURE,
    Assigning,
    Function,
    OwnClass,
    Scope,
    assigned_pairs,
    binding,
    imported,
    imported_by_text,
    is_ellipsis,
    is_none,
    is_npu,
    joined,
    learn,
    local_classes,
    one_of,
    parsed_annotation,
    same_name,
    stored,
    ways,
)
from patchkit.wheel_modules import dotted

_WRAPPERS = {"Optional", "ClassVar", "Final", "Annotated"}
_SEVERAL = {"list", "List", "Sequence", "Iterable", "Iterator", "tuple", "set", "deque"}
_BY_KEYS = {"dict", "Dict", "Mapping", "MutableMapping", "defaultdict"}
_ONE_OF = {"pop", "popleft", "get", "setdefault"}
_PROPERTIES = {"property", "cached_property"}
_PLAIN = {"staticmethod", "classmethod", *_PROPERTIES}
# An object of a class; what an operator returns is torch's, as other calls may be.
_OBJECT = re.compile(r"^torch.*\.[A-Z]\w*\(\)$")
# Each round may tell what another one needs.
_ROUNDS = 3


class Values:
    """The classes and scopes of one parsed source."""

    def __init__(self, tree: ast.Module) -> None:
        self.classes: dict[str, OwnClass] = {}
        self.module: Scope = {}
        self._bindings: dict[ast.AST, list[ast.AST]] = {}
        self._known: dict[tuple[Function, int], Scope] = {}
        self._results: dict[Function, str | None] = {}
        self._functions = {
            node.name: node for node in tree.body if isinstance(node, FUNCTIONS)
        }
        self._fill(self.module, tree, [self.module])
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self._add_class(node, [self.module])
        functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
        self._nodes = {function: [*ast.walk(function)] for function in functions}
        for function, node in local_classes(functions):
            scopes = [self.scope(function, [self.module], None), self.module]
            self._add_class(node, scopes)
        before = None
        for _ in range(_ROUNDS):
            known = {name: dict(c.attributes) for name, c in self.classes.items()}
            if known == before:
                break
            before = known
            self._known.clear()
            self._results.clear()
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
        places = [*args.posonlyargs, *args.args]
        every = [*places, *args.kwonlyargs]
        # A parameter hides a name of the module, whatever it is.
        inside.update(
            {each.arg: "" for each in (*every, args.vararg, args.kwarg) if each}
        )
        scopes = [inside, *outer]
        given = dict(zip(reversed(places), reversed(args.defaults), strict=False))
        given |= {
            a: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d
        }
        for number, each in enumerate(every):
            value = self.annotation(each.annotation, scopes)
            decorators = {dotted(d) for d in node.decorator_list}
            if own is not None and number == 0 and "staticmethod" not in decorators:
                is_class = "classmethod" in decorators
                value = f"@{own.node.name}" + ("" if is_class else "()")
            if value is None and each in given:
                value = self.of(given[each], outer)
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
            own_class = f"@{node.id}" if node.id in self.classes else None
            return next((s[node.id] for s in scopes if node.id in s), own_class)
        if isinstance(node, ast.Attribute):
            return self._attribute(self.of(node.value, scopes, own), node.attr)
        if isinstance(node, ast.Call):
            return self._called(node, scopes, own)
        if isinstance(node, ast.Subscript):
            several = self.of(node.value, scopes, own)
            return several if isinstance(node.slice, ast.Slice) else one_of(several)
        if isinstance(node, (ast.List, ast.Tuple, ast.IfExp)):
            return self._of_parts(node, scopes, own)
        return joined(self.of(each, scopes, own) for each in ways(node))

    def _of_parts(
        self,
        node: ast.List | ast.Tuple | ast.IfExp,
        scopes: list[Scope],
        own: OwnClass | None,
    ) -> str | None:
        parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.elts
        found = [self.of(each, scopes, own) for each in parts if not is_none(each)]
        value = joined(found)
        if isinstance(node, ast.IfExp):
            return value if all(found) or not value else UNSURE
        return f"[]{value}" if value and value != UNSURE and all(found) else None

    def _attribute(self, base: str | None, name: str) -> str | None:
        if not base or base == UNSURE or base[:2] in ("[]", "{}"):
            return UNSURE if base == UNSURE else None
        if not base.startswith("@"):
            return same_name(f"{base}.{name}")
        own = self.classes[base[1:].removesuffix("()")]
        if name in own.attributes:
            return own.attributes[name]
        if name in own.properties:
            return self._returned(own.methods[name], own)
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
            owner = self.of(node.args[0], scopes, own)
            text = name.value if isinstance(name, ast.Constant) else ""
            return self._attribute(owner, str(text)) if text else None
        if function.rpartition(".")[2] == "cast" and node.args:
            return self.annotation(node.args[0], scopes)
        if made := self._own_function(node.func, scopes, own):
            return self._returned(*made)
        if module := imported_by_text(node):
            return module
        return self._result(node.func, scopes, own)

    def _result(
        self, function: ast.expr, scopes: list[Scope], own: OwnClass | None
    ) -> str | None:
        if isinstance(function, ast.Attribute):
            several = self.of(function.value, scopes, own) or ""
            if several[:2] in ("[]", "{}"):
                found = one_of(several) if function.attr in _ONE_OF else None
                return f"[]{several[2:]}" if function.attr == "values" else found
        value = self.of(function, scopes, own)
        if not value or value == UNSURE:
            return value
        is_class = value.startswith("@") and not value.endswith("()")
        return f"{value}()" if is_class or is_npu(value) else None

    def _own_function(
        self, node: ast.expr, scopes: list[Scope], own: OwnClass | None
    ) -> tuple[Function, OwnClass | None] | None:
        """A function of the source, and the class that it is a method of."""
        if isinstance(node, ast.Name) and node.id in self._functions:
            hidden = any(node.id in scope for scope in scopes[:-1])
            return None if hidden else (self._functions[node.id], None)
        if isinstance(node, ast.Attribute):
            owner = self.of(node.value, scopes, own) or ""
            made_by = self.classes.get(owner.removesuffix("()").removeprefix("@"))
            if owner[:1] == "@" and made_by and node.attr in made_by.methods:
                return made_by.methods[node.attr], made_by
        return None

    def _returned(self, function: Function, own: OwnClass | None) -> str | None:
        """What a call of it gives; None while that is being found out."""
        decorators = {dotted(d).rpartition(".")[2] for d in function.decorator_list}
        if function in self._results or decorators - _PLAIN:
            return self._results.get(function)
        if function.returns is not None:
            return self.annotation(function.returns, [self.module])
        self._results[function] = None
        scopes = [self.scope(function, [self.module], own), self.module]
        found = joined(
            self.of(node.value, scopes, own)
            for node in self._bound_in(function)
            if isinstance(node, ast.Return)
        )
        self._results[function] = found
        return found

    def annotation(self, node: ast.expr | None, scopes: list[Scope]) -> str | None:
        """The value that a name with this annotation has."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.annotation(parsed_annotation(node), scopes)
        if isinstance(node, ast.BinOp):
            return self._union([node.left, node.right], scopes)
        if isinstance(node, ast.Subscript):
            return self._subscripted(node, scopes)
        value = self.of(node, scopes)
        if value and (is_npu(value) or value.startswith("@")):
            return f"{value}()"
        return None

    def _subscripted(self, node: ast.Subscript, scopes: list[Scope]) -> str | None:
        head = dotted(node.value).rpartition(".")[2]
        inside = node.slice
        parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
        if head == "Union":
            return self._union(parts, scopes)
        if head == "tuple" and not is_ellipsis(parts[-1]):
            return None
        is_by_keys = head in _BY_KEYS and len(parts) > 1
        inner = self.annotation(parts[is_by_keys], scopes)
        if not inner or head in _WRAPPERS:
            return inner
        if is_by_keys:
            return f"{{}}{inner}"
        return f"[]{inner}" if head in _SEVERAL else None

    def _union(self, parts: list[ast.expr], scopes: list[Scope]) -> str | None:
        found = [self.annotation(part, scopes) for part in parts]
        some = joined(found)
        # Of torch_npu or not: its attributes need not be torch_npu's.
        others = [
            part
            for part, value in zip(parts, found, strict=True)
            if not value and not is_none(part)
        ]
        return UNSURE if some and others else some

    def _fill(self, scope: Scope, tree: ast.AST, scopes: list[Scope]) -> None:
        """Learn names from the statements below ``tree``, other scopes left out."""
        bound = self._bound_in(tree)
        places = {
            name: self.module if isinstance(node, ast.Global) else scopes[1]
            for node in bound
            if isinstance(node, (ast.Global, ast.Nonlocal)) and len(scopes) > 1
            for name in node.names
        }

        def put(target: ast.expr | None, value: str | None) -> None:
            if isinstance(target, ast.Name):
                learn(places.get(target.id, scope), target.id, value)

        others = set()
        for node in bound:
            # Whatever it is, it hides the name that there may be further out.
            for name in stored(node):
                places.get(name, scope).setdefault(name, "")
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for name, value in imported(node).items():
                    places.get(name, scope)[name] = value
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                for target, given in assigned_pairs(node):
                    made = self._assigned(node, given, scopes)
                    put(target, made)
                    if isinstance(given, ast.Call) and not made:
                        others.add(dotted(target))
            elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                several = self.of(node.iter, scopes) or ""
                put(node.target, several[2:] if several[:2] == "[]" else None)
            elif isinstance(node, ast.withitem):
                put(node.optional_vars, self.of(node.context_expr, scopes))
        for name in others:
            if _OBJECT.search(scope.get(name, "")):
                scope[name] = UNSURE

    def _bound_in(self, tree: ast.AST) -> list[ast.AST]:
        if tree not in self._bindings:
            self._bindings[tree] = binding(tree)
        return self._bindings[tree]

    def _assigned(
        self,
        node: Assigning,
        given: ast.expr | None,
        scopes: list[Scope],
        own: OwnClass | None = None,
    ) -> str | None:
        value = self.of(given, scopes, own)
        if isinstance(node, ast.AnnAssign):
            return self.annotation(node.annotation, scopes) or value
        return value

    def made(self, value: str) -> str | None:
        """The class of torch_npu that a class of the source is made as, if any."""
        own = self.classes.get(value.removeprefix("@"))
        is_own = own is None or own.own & {"__init__", "__new__"}
        return None if own is None or is_own else own.base or None

    def class_scope(self, node: ast.ClassDef, outer: list[Scope]) -> Scope:
        """The names of a class's body, which its methods do not see."""
        inside: Scope = {}
        self._fill(inside, node, [inside, *outer])
        return inside

    def _add_class(self, node: ast.ClassDef, scopes: list[Scope]) -> None:
        own = OwnClass(node)
        for base in filter(None, (self.of(b, scopes) for b in node.bases)):
            above = self.classes.get(base.removeprefix("@"))
            if base.startswith("@") and above:
                own.base = own.base or above.base
                own.methods |= above.methods
                own.properties |= above.properties
                own.own |= above.own
            elif is_npu(base):
                own.base = own.base or base
        for each in node.body:
            if isinstance(each, FUNCTIONS):
                own.methods[each.name] = each
                if _PROPERTIES & {
                    dotted(d).rpartition(".")[2] for d in each.decorator_list
                }:
                    own.properties.add(each.name)
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
            if isinstance(each, (ast.Assign, ast.AnnAssign)):
                for target, given in assigned_pairs(each):
                    if isinstance(target, ast.Name):
                        value = self._assigned(each, given, [self.module])
                        learn(own.attributes, target.id, value)
        for method in own.methods.values():
            scopes = [self.scope(method, [self.module], own), self.module]
            for node in self._nodes[method]:
                if not isinstance(node, (ast.Assign, ast.AnnAssign)):
                    continue
                for target, given in assigned_pairs(node):
                    value = self._assigned(node, given, scopes, own)
                    if isinstance(target, ast.Attribute):
                        owner = self.of(target.value, scopes, own) or ""
                        if owner.removesuffix("()") == f"@{own.node.name}":
                            own.own.add(target.attr)
                            learn(own.attributes, target.attr, value)

    def _learn_fields(self, function: Function) -> None:
        """What the fields of own classes are given where an object is made."""
        owner = next(
            (c for c in self.classes.values() if function in c.methods.values()), None
        )
        scopes = [self.scope(function, [self.module], owner), self.module]
        for node in self._nodes[function]:
            if not isinstance(node, ast.Call):
                continue
            made = self.classes.get(dotted(node.func))
            if made is None or "__init__" in made.methods:
                continue
            pairs = [*zip(made.fields, node.args, strict=False)]
            pairs += [(k.arg, k.value) for k in node.keywords if k.arg]
            for name, value in pairs:
                learn(made.attributes, name, self.of(value, scopes, owner))
