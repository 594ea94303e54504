"""The template that registers operators: what it makes, and what it refuses."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor
from vllm.model_executor.layers import npu_ops
from vllm.utils.npu_op_registration import (
    OutputShape,
    npu_op_registry,
    register_npu_op,
)
from vllm.utils.torch_utils import direct_register_custom_op


def repeat(x: Tensor, times: int = 2) -> Tensor:
    return x.repeat(times, 1)


def fill(x: Tensor, value: float = 1.0) -> None:
    x.fill_(value)


def twice(x: Tensor) -> tuple[Tensor, Tensor]:
    return x + x, 2 * x


def maybe(x: Tensor, y: Tensor | None) -> Tensor:
    return x.clone() if y is None else x + y


def size(x: Tensor) -> int:
    return x.numel()


def pieces(x: Tensor) -> list[Tensor]:
    return [x.clone()]


x_like = OutputShape("x")


def test_a_shape_rule_gets_the_default_values_too() -> None:
    def shape(arguments: dict) -> tuple[int, ...]:
        return arguments["x"].shape[0] * arguments["times"], arguments["x"].shape[1]

    register_npu_op("npu_test_repeat", repeat, [OutputShape("x", shape)])
    op = torch.ops.vllm.npu_test_repeat
    x = torch.randn(3, 4).npu()
    for arguments in ((x,), (x, 2), (x, 3)):
        torch.library.opcheck(op, arguments)
        with torch._subclasses.FakeTensorMode() as mode:
            fake = op(mode.from_tensor(x), *arguments[1:])
        assert fake.shape == op(*arguments).shape


def test_an_operator_that_writes_to_an_argument_returns_nothing() -> None:
    register_npu_op("npu_test_fill", fill, [], mutates_args=["x"])
    op = torch.ops.vllm.npu_test_fill
    x = torch.zeros(3).npu()
    assert op(x) is None
    assert x.tolist() == [1, 1, 1]
    assert op.default._schema.arguments[0].alias_info.is_write
    torch.library.opcheck(op, (x, 2.0))
    with torch._subclasses.FakeTensorMode() as mode:
        assert op(mode.from_tensor(x)) is None


def test_a_second_registration_changes_nothing() -> None:
    for _ in range(2):
        register_npu_op("npu_test_twice", twice, [x_like, x_like])
    entry = npu_op_registry["npu_test_twice"]
    npu_ops.register_npu_ops()
    npu_ops.register_npu_ops()
    assert npu_op_registry["npu_test_twice"] is entry
    with pytest.raises(ValueError, match=r"Another function.*npu_test_twice"):
        register_npu_op("npu_test_twice", repeat, [x_like])


@pytest.mark.parametrize(
    ("function", "rules", "error"),
    [
        (repeat, [], r"returns \(Tensor\), but 0"),
        (twice, [x_like], r"returns \(Tensor, Tensor\), but 1"),
        (repeat, [x_like, x_like], r"returns \(Tensor\), but 2"),
        (fill, [x_like], r"returns \(\), but 1"),
        (size, [x_like], r"returns \(int\)"),
        (pieces, [x_like], r"returns \(List\[Tensor\]\)"),
        (repeat, [OutputShape("z")], "like z"),
        (repeat, [OutputShape("times")], "like times"),
        # Which may be None.
        (maybe, [OutputShape("y")], "like y"),
    ],
)
def test_without_a_rule_for_each_output_nothing_is_registered(
    function: object, rules: list[OutputShape], error: str
) -> None:
    with pytest.raises(ValueError, match=f"npu_test_refused {error}|{error}"):
        register_npu_op("npu_test_refused", function, rules)
    assert "npu_test_refused" not in npu_op_registry
    assert not hasattr(torch.ops.vllm, "npu_test_refused")


def operators_not_by_the_template() -> list[str]:
    """Those named npu_* whose fake implementation the template has not made."""
    names = {
        name.removeprefix("vllm::").partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("vllm::npu_")
    }
    found = []
    for name in sorted(names):
        entry = torch._library.simple_registry.singleton.find(f"vllm::{name}")
        kernel = entry.fake_impl.kernel
        mine = npu_op_registry.get(name)
        # torch registers a function around it.
        inner = inspect.getclosurevars(kernel.func).nonlocals if kernel else {}
        if mine is None or inner.get("func") is not mine.fake_impl:
            found.append(name)
    return found


def test_every_operator_has_its_fake_from_the_template() -> None:
    npu_ops.register_npu_ops()
    assert operators_not_by_the_template() == []


@pytest.mark.parametrize("fake", [None, repeat], ids=["without", "by hand"])
def test_that_one_with_another_fake_is_found(fake: object) -> None:
    with torch.library._scoped_library("vllm", "FRAGMENT") as library:
        direct_register_custom_op(
            "npu_test_by_hand", repeat, fake_impl=fake, target_lib=library
        )
        assert operators_not_by_the_template() == ["npu_test_by_hand"]
    assert operators_not_by_the_template() == []
