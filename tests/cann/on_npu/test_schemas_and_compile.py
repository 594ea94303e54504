"""torch_npu's own schemas and meta functions, and torch.compile on npu tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_npu


def npu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).npu()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        # By the schema:
        (lambda: torch_npu.npu_rms_norm(npu(2, 8), npu(8), eps=1e-6), "eps"),
        (lambda: torch_npu.npu_swiglu(npu(2, 8), dim="last"), "dim"),
        (lambda: torch_npu.npu_rotary_mul(npu(1, 2, 2, 8), npu(1, 2, 1, 8)), "r2"),
        (
            lambda: torch_npu.npu_fused_infer_attention_score(
                npu(2, 2, 8), npu(2, 2, 8), npu(2, 2, 8), heads=2
            ),
            "heads",
        ),
        # By what the operator says of its arguments:
        (lambda: torch_npu.npu_swiglu(npu(2, 7)), r"npu_swiglu.*7"),
        (lambda: torch_npu.npu_rms_norm(npu(2, 8), npu(4)), "npu_rms_norm"),
        (
            lambda: torch_npu.npu_add_rms_norm(
                npu(2, 8), npu(2, 8, dtype=torch.float16), npu(8)
            ),
            "npu_add_rms_norm",
        ),
        (
            lambda: torch_npu.npu_fused_infer_attention_score(
                npu(2, 2), npu(2, 2), npu(2, 2), input_layout="TND"
            ),
            "npu_fused_infer_attention_score",
        ),
    ],
    ids=[
        "keyword",
        "dim_type",
        "missing",
        "keyword_fia",
        "odd",
        "weight",
        "dtype",
        "rank",
    ],
)
def test_a_wrong_call_is_refused(call: Callable[[], object], error: str) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError), match=rf"(?s){error}"):
        call()


@pytest.mark.parametrize(("layout", "rank"), [("TND", 3), ("BNSD", 4)])
def test_the_meta_function_refuses_a_wrong_rank(layout: str, rank: int) -> None:
    """As torch.compile would, before anything runs; norms and rotary do not check."""
    with torch._subclasses.FakeTensorMode():
        x = torch.empty([2] * (rank - 1), device="npu")
        with pytest.raises(RuntimeError, match=rf"{layout}.*must be {rank}"):
            torch_npu.npu_fused_infer_attention_score(
                x, x, x, input_layout=layout, num_heads=1
            )


class SmallModel(torch.nn.Module):
    """Norm, projection, rotary embedding, swiglu, as a decoder layer has them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.ones(32), requires_grad=False)
        random = torch.randn(32, 32, generator=generator)
        self.projection = torch.nn.Parameter(random, requires_grad=False)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        h, _ = torch_npu.npu_rms_norm(x, self.weight, 1e-6)
        q = (h @ self.projection).view(1, -1, 2, 16)
        q = torch_npu.npu_rotary_mul(q, cos, sin)
        return torch_npu.npu_swiglu(q.reshape(x.shape[0], 32))


def test_a_compiled_model_has_the_operator_as_a_node_and_replays_as_eager() -> None:
    model = SmallModel().npu()
    angles = torch.arange(6.0)[:, None] * 10000 ** -(torch.arange(8) / 8)
    angles = torch.cat((angles, angles), -1).view(1, 6, 1, 16)
    cos, sin = angles.cos().npu(), angles.sin().npu()
    x = npu(6, 32)
    eager = model(x, cos, sin).cpu()
    nodes: list[str] = []

    def backend(module: torch.fx.GraphModule, inputs: list) -> Callable:
        nodes.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert torch.equal(compiled(x, cos, sin).cpu(), eager)
    assert any("npu_rotary_mul" in node for node in nodes), nodes

    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = compiled(x, cos, sin)
    for _ in range(2):
        x.copy_(torch.randn(6, 32))
        graph.replay()
        assert torch.equal(out.cpu(), model(x, cos, sin).cpu())
