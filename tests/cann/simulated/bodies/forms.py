"""One list of arguments for the forms of an operator."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, TypeVar

Form = TypeVar("Form", bound=Callable[..., Any])


def takes_arguments_of(
    other: Callable[..., Any], *more: Parameter
) -> Callable[[Form], Form]:
    """Give a function the signature of another, without `op`, with more at the end."""
    taken = [p for p in signature(other).parameters.values() if p.name != "op"]

    def give(function: Form) -> Form:
        function.__signature__ = signature(other).replace(  # type: ignore[attr-defined]
            parameters=[*taken, *more],
            return_annotation=signature(function).return_annotation,
        )
        return function

    return give


# What the .out forms take beyond the plain ones.
OUT_ARGUMENTS = (
    Parameter(
        "workspace", Parameter.KEYWORD_ONLY, default=None, annotation="Tensor | None"
    ),
    Parameter("out", Parameter.KEYWORD_ONLY, annotation="Sequence[Tensor]"),
)
