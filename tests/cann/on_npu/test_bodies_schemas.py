"""The signatures of the bodies against the schemas that torch_npu registers."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature

import pytest
import torch
from simulated.bodies import BODIES, body
from simulated.bodies.registry import refuse_unmodelled


@pytest.fixture(scope="module")
def op_schemas() -> Mapping[str, torch._C.FunctionSchema]:
    """Schemas of the operators that have a body, as torch_npu registered them."""
    found = {}
    for name in BODIES:
        base, _, overload = name.partition(".")
        found[name] = torch._C._get_schema(base, overload)
    return found


@pytest.mark.parametrize("name", sorted(BODIES))
def test_takes_the_arguments_of_the_schema(name, op_schemas) -> None:
    wanted = [
        (
            argument.name,
            argument.default_value if argument.has_default_value() else Parameter.empty,
            argument.kwarg_only,
        )
        for argument in op_schemas[name].arguments
    ]
    taken = [
        (parameter.name, parameter.default, parameter.kind is Parameter.KEYWORD_ONLY)
        for parameter in signature(BODIES[name]).parameters.values()
    ]
    assert taken == wanted


def test_a_second_body_for_an_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="npu::npu_swiglu: a second"):
        body("npu::npu_swiglu")(lambda: None)


@pytest.mark.parametrize("value", [torch.zeros(1), torch.zeros(0), [], [3], 1, True])
def test_any_value_but_the_default_is_unmodelled(value) -> None:
    refuse_unmodelled("npu::op", a=None, b=0, c=False)
    with pytest.raises(NotImplementedError, match=r"npu::op: argument x=.* has no ref"):
        refuse_unmodelled("npu::op", a=None, x=value)
