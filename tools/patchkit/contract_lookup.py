"""Finds a dotted name of torch_npu in the contract of a wheel.

A name is as the user has it, calls included: ``torch_npu.npu.Event().record`` is a
method of what a class makes, ``torch_npu.npu.f().x`` an attribute of ``f``'s result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from patchkit.npu_syntax import same_name
from patchkit.signatures import Signature, python_signature, schema_signature
from patchkit.wheel_contract import Contract

ROOT = "torch_npu"
_OPERATOR = re.compile(r"torch\.ops\.(npu|atb)\.(.+)")
# The package sets this name at run time.
_ATB = re.compile(r"^torch_npu\.atb\b")
_NAMESPACES = {"torch.ops.npu", "torch.ops.atb"}
_PART = re.compile(r"\(\)|[^.()]+")
# What bound classes inherit from torch's own, which no text of theirs need have.
_OF_TORCH = {
    "torch_npu._C._NPUStreamBase": frozenset({"device_index", "native_handle"})
}
_DTYPE = re.compile(r"bool|string|(?:u?int|b?float|hifloat|complex)\d\w*")
_DEPTH = 20
# What every class and instance has.
_OBJECT = frozenset(dir(object)) | {"__dict__", "__doc__", "__name__"}


@dataclass(frozen=True)
class Found:
    """A name that is there. ``signatures``: what it takes, one an overload.

    ``known`` is False where the wheel does not tell what it takes, or whether it is
    there at all: ``reason`` says why.
    """

    signatures: tuple[Signature, ...] = ()
    known: bool = True
    is_foreign: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Missing:
    """A name that is not there: ``name`` is the part, ``owner`` what lacks it."""

    owner: str
    name: str


class _Gap(Exception):
    """The wheel does not tell."""


@dataclass(frozen=True)
class _Thing:
    """What a name stands for: its kind, its place, and its entry in the contract."""

    kind: str
    name: str
    entry: Any = None


class Lookup:
    """Names in one contract."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._modules = contract.modules

    def find(self, name: str) -> Found | Missing:
        """Find ``torch_npu.…``, ``torch.npu.…`` or ``torch.ops.npu.…``."""
        name = _ATB.sub("torch.ops.atb", same_name(name))
        if name in _NAMESPACES:
            return Found()
        try:
            thing: _Thing | None
            if match := _OPERATOR.match(name):
                operator, *rest = _PART.findall(match[2])
                thing = self._operator(match[1], operator)
                if thing is None:
                    return Missing(f"torch.ops.{match[1]}", operator)
            else:
                _, *rest = _PART.findall(name)
                thing = _Thing("module", ROOT)
            for part in rest:
                owner = thing
                thing = self._result(owner) if part == "()" else self._get(owner, part)
                if thing is None:
                    return Missing(owner.name, part)
            signatures = tuple(self._signatures(thing))
            return Found(signatures, is_foreign=thing.kind == "tensor")
        except _Gap as gap:
            return Found(known=False, reason=str(gap))

    def is_foreign(self, name: str) -> bool:
        """Whether it is an attribute of what an operator returns, so torch's."""
        found = self.find(name)
        return isinstance(found, Found) and found.is_foreign

    def _operator(self, namespace: str, name: str) -> _Thing | None:
        schemas = self._contract.operators.get(namespace, {}).get(name)
        return _Thing("operator", name, schemas) if schemas else None

    def _get(self, owner: _Thing, part: str) -> _Thing | None:
        """An attribute; None where there is none, _Gap where nothing tells."""
        if owner.kind == "module":
            return self._of_module(owner.name, part)
        if owner.kind in ("class", "instance"):
            return self._of_class(owner, part)
        if owner.kind == "operator":
            return self._overload(owner, part)
        if owner.kind == "bound":
            name = f"{owner.name}.{part}"
            is_there = part in self._contract.bound or part in _OF_TORCH.get(
                owner.name, ()
            )
            return _Thing("bound", name) if is_there else None
        if owner.kind == "tensor":
            return owner
        raise _Gap(f"what {owner.name} is made of is not in the wheel")

    def _of_module(self, module: str, part: str, depth: int = 0) -> _Thing | None:
        if depth > _DEPTH:
            raise _Gap(f"{module}.{part} is imported in a circle")
        name = f"{module}.{part}"
        if name == "torch_npu._C":
            return _Thing("bound", name)
        entry = self._modules[module].names.get(part)
        # A name by itself, or in `__all__` alone, tells no more than that it is there.
        is_vague = entry is not None and entry in (["value"], ["is", name])
        if entry is not None and not is_vague:
            return self._entry(name, entry, depth)
        if name in self._modules:
            return _Thing("module", name)
        if name in self._contract.files:
            raise _Gap(f"the module {name} is not read")
        for star in self._modules[module].stars:
            if star in self._modules and (
                found := self._of_module(star, part, depth + 1)
            ):
                return found
        found = self._exported(part) if module == ROOT else None
        if found is None and entry == ["value"]:
            return _Thing("value", name)
        return found

    def _exported(self, part: str) -> _Thing | None:
        """An operator that the package has as its own name."""
        if part in self._contract.atb_names:
            return self._operator("atb", part)
        if found := self._operator("npu", part):
            return found
        # Set in a loop over what the library binds.
        is_dtype = _DTYPE.fullmatch(part) and part in self._contract.bound
        return _Thing("value", f"{ROOT}.{part}") if is_dtype else None

    def _entry(self, name: str, entry: list[Any], depth: int) -> _Thing | None:
        kind, *rest = entry
        if kind == "is":
            return self._follow(rest[0], depth + 1)
        kinds = {"def": "function", "class": "class"}
        return _Thing(kinds.get(kind, "value"), name, rest)

    def _follow(self, name: str, depth: int) -> _Thing | None:
        """What a dotted name of the wheel's own sources stands for."""
        name = same_name(name)
        if match := _OPERATOR.fullmatch(name):
            return self._operator(match[1], match[2])
        first, *rest = name.split(".")
        if first != ROOT:
            raise _Gap(f"{name} is not of the wheel")
        thing: _Thing | None = _Thing("module", ROOT)
        for part in rest:
            if thing is None:
                break
            if thing.kind == "module":
                thing = self._of_module(thing.name, part, depth)
            else:
                thing = self._get(thing, part)
        return thing

    def _of_class(self, owner: _Thing, part: str) -> _Thing | None:
        bases, attributes = owner.entry
        if part in attributes:
            kind, *rest = attributes[part]
            name = f"{owner.name}.{part}"
            if kind == "value":
                return _Thing("value", name)
            # Called through the class, a method is given its instance too.
            is_plain = kind == "static" or owner.kind == "class"
            return _Thing("function" if is_plain else "method", name, rest)
        gap = ""
        for base in bases:
            try:
                thing = self._follow(base, 0)
                if thing is None or thing.kind == "value":
                    raise _Gap(f"{base} is not read")
                if thing.kind == "class":
                    thing = _Thing(owner.kind, thing.name, thing.entry)
                if found := self._get(thing, part):
                    return found
            except _Gap as error:
                gap = str(error) if base != "object" else gap
        if part in _OBJECT:
            return _Thing("value", f"{owner.name}.{part}")
        if gap:
            raise _Gap(f"{owner.name}.{part} may be inherited: {gap}")
        return None

    def _overload(self, owner: _Thing, part: str) -> _Thing | None:
        wanted = owner.name if part == "default" else f"{owner.name}.{part}"
        schemas = [
            schema
            for schema in owner.entry
            if schema.partition("(")[0].rpartition("::")[2] == wanted
        ]
        name = f"{owner.name}.{part}"
        return _Thing("overload", name, schemas) if schemas else None

    def _result(self, called: _Thing) -> _Thing | None:
        if called.kind == "class":
            return _Thing("instance", called.name, called.entry)
        if called.kind in ("bound", "tensor"):
            return called
        if called.kind in ("operator", "overload"):
            # Of torch, or several of them: not torch_npu's to tell.
            return _Thing("tensor", called.name)
        if called.kind in ("function", "method") and called.entry[1]:
            thing = self._follow(called.entry[1], 0)
            return None if thing is None else self._result(thing)
        raise _Gap(f"what {called.name} returns is not in the wheel")

    def _signatures(self, thing: _Thing) -> Iterator[Signature]:
        if thing.kind in ("operator", "overload"):
            for schema in thing.entry:
                try:
                    yield schema_signature(schema)
                except ValueError as error:
                    raise _Gap(f"{thing.name}: {error}") from None
        elif thing.kind in ("function", "method"):
            yield python_signature(thing.entry[0], bound=thing.kind == "method")
        elif thing.kind == "class":
            made = _Thing("instance", thing.name, thing.entry)
            for maker in ("__init__", "__new__"):
                try:
                    found = self._of_class(made, maker)
                except _Gap:
                    continue
                if found is not None and found.kind == "method":
                    yield from self._signatures(found)
                    return
