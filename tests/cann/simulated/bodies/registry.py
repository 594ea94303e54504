"""The table of reference bodies, and the two refusals that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Body = TypeVar("Body", bound=Callable[..., Any])

BODIES: dict[str, Callable[..., Any]] = {}


def body(name: str) -> Callable[[Body], Body]:
    """Enter the decorated function in BODIES.

    name: the overload as the dispatcher knows it, "ns::op" or "ns::op.overload".
    Raises ValueError where that overload already has a body.
    """

    def enter(function: Body) -> Body:
        if name in BODIES:
            raise ValueError(f"{name}: a second reference body")
        BODIES[name] = function
        return function

    return enter


def refuse_unmodelled(op: str, **arguments: Any) -> None:
    """Raise NotImplementedError for the first argument away from its default.

    For arguments whose default is None, 0 or False, as all unmodelled ones have.
    """
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) or value not in (None, 0):
            raise unmodelled(op, name, value)


def unmodelled(op: str, argument: str, value: Any) -> NotImplementedError:
    """The error for a value that the op takes and the reference body does not."""
    return NotImplementedError(
        f"{op}: argument {argument}={_shown(value)} has no reference body"
    )


def wrong(op: str, argument: str, value: Any, rule: str) -> ValueError:
    """The error for a value that breaks a rule of the op."""
    return ValueError(f"{op}: argument {argument}={_shown(value)} {rule}")


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"<{value.dtype} {tuple(value.shape)}>"
    return repr(value)
