"""The custom operators: values, shapes, aliases, as nodes of compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from operators import (
    CASES,
    LAYOUTS,
    TOLERANCES,
    Form,
    on_cpu,
    outputs,
    storages,
    strides,
)
from torch import Tensor
from vllm.model_executor.layers import npu_ops
from vllm.utils.npu_op_registration import npu_op_registry

npu_ops.register_npu_ops()

each_operator = pytest.mark.parametrize("name", CASES)


@st.composite
def forms(draw: st.DrawFn) -> Form:
    head_size = draw(st.sampled_from([2, 4, 8, 16]))
    return Form(
        dtype=draw(st.sampled_from(list(TOLERANCES))),
        tokens=draw(st.integers(0, 5)),
        head_size=head_size,
        rotary_dim=2 * draw(st.integers(1, head_size // 2)),
        is_neox_style=draw(st.booleans()),
        layout=draw(st.sampled_from(LAYOUTS)),
    )


def call(name: str, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return outputs(getattr(torch.ops.vllm, name)(*arguments))


def test_each_operator_of_the_module_has_a_case() -> None:
    ours = {
        name
        for name, op in npu_op_registry.items()
        if op.op_func.__module__ == npu_ops.__name__
    }
    assert ours == set(CASES)


@each_operator
@settings(deadline=None, max_examples=60)
@given(form=forms())
def test_values_are_those_of_float64(name: str, form: Form) -> None:
    arguments = CASES[name].arguments(form)
    before = on_cpu(arguments)
    found = call(name, arguments)
    wanted = CASES[name].expected(*before)
    for mine, exact in zip(found, wanted, strict=True):
        close(mine, exact, form.dtype)
    # And the arguments are as they were.
    for is_now, was in zip(on_cpu(arguments), before, strict=True):
        if isinstance(was, Tensor):
            assert torch.equal(is_now, was)


def close(mine: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    assert mine.dtype == dtype
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(
        mine.cpu().double(), exact, rtol=tolerance, atol=tolerance
    )


@each_operator
@settings(deadline=None, max_examples=60)
@given(form=forms())
def test_outputs_are_as_the_fake_says_and_share_no_memory(
    name: str, form: Form
) -> None:
    arguments = CASES[name].arguments(form)
    found = call(name, arguments)
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = tuple(
            mode.from_tensor(x) if isinstance(x, Tensor) else x for x in arguments
        )
        promised = call(name, fakes)
    for mine, fake in zip(found, promised, strict=True):
        assert mine.shape == fake.shape
        assert strides(mine) == strides(fake)
        assert (mine.dtype, mine.device) == (fake.dtype, fake.device)
        assert mine.is_contiguous()
        assert fake.is_contiguous()
    assert len(set(storages(found))) == len(found)
    assert not set(storages(found)) & set(storages(arguments))


@each_operator
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rotary_dim", [4, 8])
def test_opcheck(name: str, layout: str, rotary_dim: int) -> None:
    arguments = CASES[name].arguments(Form(rotary_dim=rotary_dim, layout=layout))
    results = torch.library.opcheck(getattr(torch.ops.vllm, name), arguments)
    assert set(results.values()) == {"SUCCESS"}, results


@each_operator
@pytest.mark.parametrize("layout", ["contiguous", "by_head", "batched"])
def test_a_compiled_graph_has_the_operator_as_a_node_for_all_batch_sizes(
    name: str, layout: str
) -> None:
    op = getattr(torch.ops.vllm, name)
    graphs: list[torch.fx.GraphModule] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        graphs.append(module)
        return module.forward

    def twice(*arguments: Any) -> list[Tensor]:
        return [2 * output for output in outputs(op(*arguments))]

    torch._dynamo.reset()
    compiled = torch.compile(twice, backend=backend, fullgraph=True, dynamic=True)
    # The first differs from all other sizes, as the compiler takes equal ones for one.
    for tokens in (5, 3, 7, 16):
        arguments = CASES[name].arguments(Form(tokens=tokens, layout=layout))
        for mine, eager in zip(compiled(*arguments), twice(*arguments), strict=True):
            assert torch.equal(mine.cpu(), eager.cpu())
    assert len(graphs) == 1
    nodes = [node for node in graphs[0].graph.nodes if node.target in (op, op.default)]
    assert len(nodes) == 1
    tokens_at = 1 if layout == "batched" else 0
    for output in outputs(nodes[0].meta["example_value"]):
        assert isinstance(output.shape[tokens_at], torch.SymInt)


@each_operator
def test_aot_autograd_keeps_sizes_symbolic(name: str) -> None:
    arguments = CASES[name].arguments(Form(tokens=5))
    op = getattr(torch.ops.vllm, name)
    module = torch.fx.experimental.proxy_tensor.make_fx(
        lambda *tensors: op(*with_tensors(arguments, tensors)),
        tracing_mode="symbolic",
    )(*[x for x in arguments if isinstance(x, Tensor)])
    (node,) = [n for n in module.graph.nodes if n.target is op.default]
    for output in outputs(node.meta["val"]):
        assert isinstance(output.shape[0], torch.SymInt)
    # No size was compared, so other sizes need no other graph.
    other = CASES[name].arguments(Form(tokens=9))
    found = outputs(module(*[x for x in other if isinstance(x, Tensor)]))
    for mine, eager in zip(found, call(name, other), strict=True):
        assert torch.equal(mine.cpu(), eager.cpu())


def with_tensors(arguments: tuple[Any, ...], tensors: tuple[Tensor, ...]) -> list[Any]:
    """The arguments with other tensors in the place of theirs."""
    left = iter(tensors)
    return [next(left) if isinstance(x, Tensor) else x for x in arguments]
