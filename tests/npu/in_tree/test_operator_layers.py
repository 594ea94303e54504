"""The layers that stand in for vLLM's, alone and in a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from operators import TOLERANCES
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.custom_op import op_registry_oot
from vllm.model_executor.layers import npu_ops
from vllm.model_executor.layers.activation import MulAndSilu, SiluAndMul
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
from vllm.model_executor.layers.rotary_embedding import (
    FourierRotaryEmbedding,
    MRotaryEmbedding,
    RotaryEmbedding,
    get_rope,
)

npu_ops.register_npu_layers()

SIZE = 16


class Calls(TorchDispatchMode):
    """The names of vLLM's operators for NPUs that are called.

    Their kernels want one dtype of all that is not an index.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.name().startswith("vllm::npu_"):
            self.names.append(func.name().removeprefix("vllm::"))
            tensors = [x for x in args if isinstance(x, Tensor)]
            assert len({x.dtype for x in tensors if x.is_floating_point()}) == 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def on_npu() -> Iterator[None]:
    """Layers are made on the device, as the model loader does."""
    torch.manual_seed(0)
    with torch.device("npu"):
        yield


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device="cpu").to(dtype).npu()


def same_as_native(layer: nn.Module, *arguments: Tensor | None) -> list[str]:
    """Which operators were called, for the result that forward_native has too."""
    copies = [None if x is None else x.clone() for x in arguments]
    with Calls() as calls:
        found = layer(*arguments)
    wanted = layer.forward_native(*copies)
    if isinstance(found, Tensor):
        found, wanted = (found,), (wanted,)
    for mine, native in zip(found, wanted, strict=True):
        if native is None:
            assert mine is None
            continue
        assert mine.dtype == native.dtype
        tolerance = 2 * TOLERANCES[native.dtype]
        torch.testing.assert_close(mine, native, rtol=tolerance, atol=tolerance)
    return calls.names


def norm(dtype: torch.dtype = torch.float32, **options: Any) -> RMSNorm:
    layer = RMSNorm(SIZE, dtype=dtype, **options)
    if layer.has_weight:
        layer.weight.data.copy_(random(SIZE, dtype=dtype))
    return layer


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("has_weight", [True, False])
def test_norm(dtype: torch.dtype, has_weight: bool) -> None:
    layer = norm(dtype, has_weight=has_weight)
    x, residual = random(3, SIZE, dtype=dtype), random(3, SIZE, dtype=dtype)
    assert same_as_native(layer, x) == ["npu_rms_norm"]
    assert same_as_native(layer, x, residual) == ["npu_add_rms_norm"]
    # Heads of a slice, as norms of q and k have them.
    heads = random(3, 4 * SIZE, dtype=dtype)[:, : 2 * SIZE].view(3, 2, SIZE)
    assert same_as_native(layer, heads) == ["npu_rms_norm"]


def test_norm_where_the_operator_does_not_apply() -> None:
    x, half = random(3, SIZE), random(3, SIZE, dtype=torch.float16)
    assert same_as_native(norm(var_hidden_size=8), x) == []
    assert same_as_native(norm(torch.float16), x) == []
    assert same_as_native(norm(), half) == []
    assert same_as_native(norm(), x, half) == []
    # Its ones are no parameter, and stay where they were made.
    with torch.device("cpu"):
        layer = RMSNorm(SIZE, has_weight=False).npu()
    assert same_as_native(layer, x) == []


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_activation(dtype: torch.dtype) -> None:
    layer = SiluAndMul()
    assert same_as_native(layer, random(3, SIZE, dtype=dtype)) == ["npu_silu_and_mul"]


SCALED = {"rope_theta": 1e4, "factor": 4.0}
ORIGINAL = {**SCALED, "original_max_position_embeddings": 16}
ROPES: dict[str, dict[str, Any]] = {
    "RotaryEmbedding": {"rope_type": "default"},
    "Llama3RotaryEmbedding": {
        "rope_type": "llama3",
        **ORIGINAL,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    "YaRNScalingRotaryEmbedding": {"rope_type": "yarn", **ORIGINAL},
    "TeleChat3RoPEScaledRotaryEmbedding": {"rope_type": "telechat3-yarn", **ORIGINAL},
    "LinearScalingRotaryEmbedding": {"rope_type": "linear", **SCALED},
    "NTKScalingRotaryEmbedding": {"rope_type": "ntk", **SCALED},
    "DynamicNTKScalingRotaryEmbedding": {"rope_type": "dynamic", **SCALED},
    "DynamicNTKAlphaRotaryEmbedding": {"rope_type": "dynamic", "alpha": 2.0},
    "Gemma4RotaryEmbedding": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.5,
    },
}


def rope(name: str, dtype: torch.dtype, is_neox_style: bool = True) -> RotaryEmbedding:
    return get_rope(SIZE, 32, is_neox_style, ROPES[name], dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("is_neox_style", [True, False])
@pytest.mark.parametrize("name", ROPES)
def test_rotary_embeddings(name: str, is_neox_style: bool, dtype: torch.dtype) -> None:
    layer = rope(name, dtype, is_neox_style)
    assert type(layer).__name__ == f"NPU{name}"
    positions = torch.tensor([0, 1, 31])
    query, key = random(3, 6 * SIZE, dtype=dtype)[:, SIZE:].split(
        [4 * SIZE, SIZE], dim=-1
    )
    assert same_as_native(layer, positions, query, key) == ["npu_rotary_embedding"]
    names = same_as_native(layer, positions, query, None)
    assert names == ["npu_rotary_embedding_query"]


@pytest.mark.parametrize("is_neox_style", [True, False])
def test_partial_rotary_embedding_with_a_cache_of_another_dtype(
    is_neox_style: bool,
) -> None:
    rope_parameters = {"rope_type": "default", "partial_rotary_factor": 0.5}
    layer = get_rope(SIZE, 32, is_neox_style, rope_parameters, torch.float32)
    assert layer.rotary_dim == 8
    positions = torch.tensor([3, 0], dtype=torch.int32)
    query = random(2, 2 * SIZE, dtype=torch.bfloat16)
    names = same_as_native(layer, positions, query, query.clone())
    assert names == ["npu_rotary_embedding"]


def _subclasses(cls: type) -> set[type]:
    below = cls.__subclasses__()
    return set(below).union(*map(_subclasses, below))


def test_the_list_has_all_subclasses_with_the_same_forward() -> None:
    methods = ("forward", "forward_native", "forward_static", "forward_oot")
    same = {
        cls
        for cls in _subclasses(RotaryEmbedding)
        if all(getattr(cls, name) is getattr(RotaryEmbedding, name) for name in methods)
    }
    assert same == set(npu_ops.ROTARY_EMBEDDING_SUBCLASSES)
    assert {cls.__name__ for cls in same} | {"RotaryEmbedding"} == set(ROPES)


def test_instances_are_of_both_classes() -> None:
    assert type(RMSNorm(SIZE)) is npu_ops.NPURMSNorm
    assert type(SiluAndMul()) is npu_ops.NPUSiluAndMul
    layer = rope("Llama3RotaryEmbedding", torch.float32)
    for cls in (npu_ops.NPURotaryEmbedding, op_registry_oot["Llama3RotaryEmbedding"]):
        assert isinstance(layer, cls)
    assert isinstance(layer, RotaryEmbedding)
    # From the __init__ of the class that was named.
    assert layer.scaling_factor == 4.0


def test_layers_with_another_forward_stay_as_they_are() -> None:
    assert FourierRotaryEmbedding.__name__ not in op_registry_oot
    parameters = {"rope_type": "default", "mrope_section": [2, 3, 3]}
    assert type(get_rope(SIZE, 32, rope_parameters=parameters)) is MRotaryEmbedding
    assert type(GemmaRMSNorm(SIZE)) is GemmaRMSNorm
    assert MulAndSilu.__name__ not in op_registry_oot


def test_the_option_custom_ops_knows_the_layers_by_their_old_names() -> None:
    options = CompilationConfig(custom_ops=["all", "-rms_norm", "-rotary_embedding"])
    x = random(3, SIZE)
    with set_current_vllm_config(VllmConfig(compilation_config=options)):
        layer = RMSNorm(SIZE)
        activation = SiluAndMul()
        llama = npu_ops.Llama3RotaryEmbedding(
            SIZE, SIZE, 32, 1e4, True, torch.float32, 4.0, 1.0, 4.0, 16
        )
    assert same_as_native(layer, x) == []
    assert same_as_native(llama, torch.arange(3), x, x.clone()) == []
    assert same_as_native(activation, x) == ["npu_silu_and_mul"]


def test_a_second_registration_changes_nothing() -> None:
    before = dict(op_registry_oot)
    npu_ops.register_npu_layers()
    assert op_registry_oot == before


def test_the_class_of_a_plugin_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class TheirNorm(RMSNorm):
        pass

    monkeypatch.setitem(op_registry_oot, "RMSNorm", TheirNorm)
    monkeypatch.delitem(op_registry_oot, "SiluAndMul")
    npu_ops.register_npu_layers()
    assert type(RMSNorm(SIZE)) is TheirNorm
    assert type(SiluAndMul()) is npu_ops.NPUSiluAndMul


class SmallModel(nn.Module):
    """A decoder layer of vLLM's layers, with sums in the place of attention."""

    heads, kv_heads = 4, 2

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        widths = [self.heads * SIZE, self.kv_heads * SIZE, self.kv_heads * SIZE]
        self.widths = widths
        hidden = widths[0]
        self.qkv = random(hidden, sum(widths), dtype=dtype) / 8
        self.up = random(hidden, 4 * hidden, dtype=dtype) / 8
        self.down = random(2 * hidden, hidden, dtype=dtype) / 8
        self.before = RMSNorm(hidden, dtype=dtype)
        self.after = RMSNorm(hidden, dtype=dtype)
        self.of_query = RMSNorm(SIZE, dtype=dtype)
        self.activation = SiluAndMul()
        self.rotary = rope("Llama3RotaryEmbedding", dtype)

    def forward(self, positions: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        qkv = self.before(x) @ self.qkv
        query, key, value = qkv.split(self.widths, dim=-1)
        query = self.of_query(query.view(-1, self.heads, SIZE)).view(query.shape)
        query, key = self.rotary(positions, query, key)
        attended = query + (key + value).repeat(1, self.heads // self.kv_heads)
        x, residual = self.after(attended, x)
        return self.activation(x @ self.up) @ self.down, residual


OPERATORS = [
    "npu_rms_norm",
    "npu_rms_norm",
    "npu_rotary_embedding",
    "npu_add_rms_norm",
    "npu_silu_and_mul",
]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_the_replay_of_a_model_is_as_eager(
    dtype: torch.dtype, is_compiled: bool
) -> None:
    model = SmallModel(dtype)
    graphs: list[list[str]] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        targets = [str(node.target) for node in module.graph.nodes]
        graphs.append([x for x in targets if x.startswith("vllm.npu_")])
        return module.forward

    run = model
    if is_compiled:
        torch._dynamo.reset()
        run = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    # One pool, from the largest, as vLLM captures.
    pool = torch.npu.graph_pool_handle()
    captured = {}
    for tokens in (7, 5, 3):
        positions, x = torch.zeros(tokens, dtype=torch.int64), random(tokens, 4 * SIZE)
        x = x.to(dtype)
        run(positions, x)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, pool=pool):
            out = run(positions, x)
        captured[tokens] = graph, positions, x, out
    if is_compiled:
        assert graphs == [[f"vllm.{name}" for name in OPERATORS]]
    for tokens, (graph, positions, x, out) in captured.items():
        for _ in range(2):
            positions.copy_(torch.randint(32, (tokens,), device="cpu"))
            x.copy_(random(tokens, 4 * SIZE, dtype=dtype))
            graph.replay()
            with Calls() as calls:
                eager = model(positions, x)
            assert calls.names == OPERATORS
            for mine, wanted in zip(out, eager, strict=True):
                assert torch.equal(mine.cpu(), wanted.cpu())
                assert wanted.isfinite().all()
