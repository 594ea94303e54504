"""What a callable takes, by an operator's schema or a ``def``, held to a call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

_ARGUMENT = re.compile(r"(?P<type>.+?)\s+(?P<name>\w+)\s*(?P<default>=.*)?", re.DOTALL)


@dataclass(frozen=True)
class CallShape:
    """A call: how many arguments by place, which by name.

    ``more_positional`` and ``more_keywords`` stand for ``*`` and ``**`` of an unknown
    value. ``maybe`` has keywords that only some ways to the call give.
    """

    positional: int = 0
    keywords: tuple[str, ...] = ()
    maybe: tuple[str, ...] = ()
    more_positional: bool = False
    more_keywords: bool = False


@dataclass(frozen=True)
class Signature:
    """The parameters of a callable, ``self`` left out.

    ``required`` has those without a default, whether by place or by name.
    """

    by_place: tuple[str, ...] = ()
    by_name: tuple[str, ...] = ()
    required: frozenset[str] = field(default_factory=frozenset)
    place_only: int = 0
    more_positional: bool = False
    more_keywords: bool = False

    def misfits(self, call: CallShape) -> list[str]:
        """What is wrong with the call, each as words that follow a name."""
        found = []
        if call.positional > len(self.by_place) and not self.more_positional:
            found.append(
                f"takes {len(self.by_place)} arguments by place, not {call.positional}"
            )
        named = {*self.by_place[self.place_only :], *self.by_name}
        given = {*self.by_place[: call.positional]}
        for keyword in (*call.keywords, *call.maybe):
            if keyword not in named:
                if not self.more_keywords:
                    found.append(f"has no keyword {keyword}")
            elif keyword in given:
                found.append(f"gets {keyword} twice")
        if not (call.more_positional or call.more_keywords):
            lacking = self.required - given - {*call.keywords, *call.maybe}
            # Without keywords that it does not have, a wrong name would tell twice.
            if lacking and not found:
                found.append(f"wants {', '.join(sorted(lacking))} too")
        return found


@lru_cache(maxsize=4096)
def schema_signature(schema: str) -> Signature:
    """The signature of ``name.overload(Tensor x, *, int n=1) -> Tensor``.

    Raises ValueError for text that is no schema.
    """
    inside = _arguments_of(schema)
    by_place: list[str] = []
    by_name: list[str] = []
    required = set()
    names = by_place
    for part in _split(inside):
        if part == "*":
            names = by_name
            continue
        match = _ARGUMENT.fullmatch(part)
        if match is None:
            raise ValueError(f"no argument of a schema: {part}")
        names.append(match["name"])
        if match["default"] is None:
            required.add(match["name"])
    return Signature(tuple(by_place), tuple(by_name), frozenset(required))


def _arguments_of(schema: str) -> str:
    begin, end = schema.find("("), schema.rfind(") ->")
    if not 0 < begin < end:
        raise ValueError(f"no schema: {schema}")
    return schema[begin + 1 : end]


def _split(inside: str) -> Iterator[str]:
    """The arguments: at commas outside of brackets and quotes."""
    depth, quote, part = 0, "", ""
    for letter in inside:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and not depth:
            yield part.strip()
            part = ""
            continue
        part += letter
    if part.strip():
        yield part.strip()


@lru_cache(maxsize=4096)
def python_signature(parameters: str, *, bound: bool) -> Signature:
    """The signature of the parameters of a ``def``, as ``ast.unparse`` writes them.

    ``bound``: the first one is ``self`` or ``cls`` and not given by callers.
    """
    (function,) = ast.parse(f"def f({parameters}): ...").body
    assert isinstance(function, ast.FunctionDef)
    args = function.args
    places = [each.arg for each in (*args.posonlyargs, *args.args)]
    optional = places[len(places) - len(args.defaults) :] if args.defaults else []
    by_name = [each.arg for each in args.kwonlyargs]
    optional += [
        each.arg
        for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
        if default is not None
    ]
    place_only = len(args.posonlyargs)
    if bound and places:
        del places[0]
        place_only = max(0, place_only - 1)
    return Signature(
        tuple(places),
        tuple(by_name),
        frozenset({*places, *by_name} - set(optional)),
        place_only,
        args.vararg is not None,
        args.kwarg is not None,
    )
