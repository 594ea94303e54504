"""The attention backend: its metadata, and its values over steps in a paged cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.v1.attention.backend import AttentionCGSupport, CommonAttentionMetadata
from vllm.v1.attention.backends.npu_attn import (
    AttentionWorkspace,
    NPUAttentionBackend,
    NPUAttentionImpl,
    NPUAttentionMetadata,
    NPUAttentionMetadataBuilder,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec

BLOCK = 128
HEADS, KV_HEADS, SIZE = 4, 2, 16
SCALE = 0.3
# Block 0 is vLLM's null block: no request has it.
BLOCKS = [[5, 2, 7], [1, 8, 3], [4, 6, 9]]


@pytest.fixture(scope="module")
def builder() -> NPUAttentionMetadataBuilder:
    spec = FullAttentionSpec(
        block_size=BLOCK,
        num_kv_heads=KV_HEADS,
        head_size=SIZE,
        dtype=torch.float32,
    )
    return NPUAttentionMetadataBuilder(spec, ["layer"], VllmConfig(), "npu:0")


def slots(request: int, start: int, length: int) -> list[int]:
    blocks = BLOCKS[request]
    return [
        blocks[place // BLOCK] * BLOCK + place % BLOCK
        for place in range(start, start + length)
    ]


def common(
    lengths: list[int], starts: list[int], padding: int = 0
) -> CommonAttentionMetadata:
    """A step with that many tokens of each request; ``padding`` requests have none."""
    found = [
        slot
        for request, (length, start) in enumerate(zip(lengths, starts, strict=True))
        for slot in slots(request, start, length)
    ]
    ends = torch.tensor([0, *lengths, *[0] * padding]).cumsum(0).to(torch.int32)
    seq_lens = [length + start for length, start in zip(lengths, starts, strict=True)]
    seq_lens_cpu = torch.tensor(seq_lens + [0] * padding, dtype=torch.int32)
    table = torch.zeros(len(seq_lens_cpu), 3, dtype=torch.int32)
    table[: len(lengths)] = torch.tensor(BLOCKS[: len(lengths)])
    return CommonAttentionMetadata(
        query_start_loc=ends.npu(),
        query_start_loc_cpu=ends,
        seq_lens=seq_lens_cpu.npu(),
        seq_lens_cpu_upper_bound=seq_lens_cpu,
        num_reqs=len(seq_lens_cpu),
        num_actual_tokens=sum(lengths) + padding,
        max_query_len=max(lengths),
        max_seq_len=max(seq_lens),
        block_table_tensor=table.npu(),
        slot_mapping=torch.tensor(found + [-1] * padding).npu(),
    )


def test_what_the_backend_says_of_itself() -> None:
    # The name of vLLM's for a backend that it does not enumerate.
    assert NPUAttentionBackend.get_name() == "CUSTOM"
    assert NPUAttentionBackend.get_impl_cls() is NPUAttentionImpl
    assert NPUAttentionBackend.get_builder_cls() is NPUAttentionMetadataBuilder
    # The operator's documentation: a multiple of 16, up to 512; blocks of 128.
    sizes = [
        size for size in range(1, 600) if NPUAttentionBackend.supports_head_size(size)
    ]
    assert sizes == list(range(16, 513, 16))
    assert NPUAttentionBackend.get_supported_kernel_block_sizes() == [BLOCK]
    shape = NPUAttentionBackend.get_kv_cache_shape(9, BLOCK, KV_HEADS, SIZE)
    assert shape == (2, 9, BLOCK, KV_HEADS, SIZE)
    support = NPUAttentionMetadataBuilder.get_cudagraph_support(None, None)
    assert support is AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE


def test_metadata_of_a_step(builder: NPUAttentionMetadataBuilder) -> None:
    step = common([3, 1, 2], [0, 130, 7])
    metadata = builder.build(0, step)
    assert metadata.num_tokens == 6
    assert metadata.query_ends == [3, 4, 6]
    assert metadata.seq_lens == [3, 131, 9]
    assert metadata.block_table is step.block_table_tensor
    assert metadata.slot_mapping.dtype == torch.int32
    assert metadata.slot_mapping.tolist() == [
        *(640, 641, 642, 8 * BLOCK + 2, 4 * BLOCK + 7, 4 * BLOCK + 8)
    ]
    assert not metadata.fitted
    # A triangle, of which the operator takes what it wants: True is hidden.
    assert metadata.mask.shape == (2048, 2048)
    rows = torch.arange(2048)
    assert torch.equal(metadata.mask.cpu(), rows[None, :] > rows[:, None])


def test_storage_is_the_same_in_each_step(builder: NPUAttentionMetadataBuilder) -> None:
    first = builder.build(0, common([3, 1], [0, 0]))
    second = builder.build(0, common([1, 1], [3, 1]))
    assert second.slot_mapping.data_ptr() == first.slot_mapping.data_ptr()
    assert second.mask is first.mask
    assert second.softmax_lse is first.softmax_lse
    assert second.workspace is first.workspace


def test_padding_attends_to_the_null_block(
    builder: NPUAttentionMetadataBuilder,
) -> None:
    metadata = builder.build(0, common([1, 1], [4, 200], padding=2))
    # One token for each, in a sequence of one, which is stored in block 0.
    assert metadata.query_ends == [1, 2, 3, 4]
    assert metadata.seq_lens == [5, 201, 1, 1]
    assert metadata.slot_mapping.tolist()[2:] == [0, 0]


def test_rows_and_tokens_that_do_not_fit(builder: NPUAttentionMetadataBuilder) -> None:
    step = common([1, 1], [4, 200], padding=2)
    step.num_actual_tokens = 3
    with pytest.raises(AssertionError, match=r"\[1, 2, 3, 4\], 3"):
        builder.build(0, step)


def test_a_workspace_grows_and_does_not_shrink() -> None:
    workspace = AttentionWorkspace()
    small, large = torch.empty(4), torch.empty(9)
    for wanted, kept in ((small, small), (large, large), (small, large)):
        workspace.fit(wanted)
        assert workspace.buffer is kept


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"alibi_slopes": [0.5] * HEADS}, "ALiBi"),
        ({"logits_soft_cap": 30.0}, "a soft cap on logits"),
        ({"attn_type": "encoder_only"}, "attention type encoder_only"),
    ],
)
def test_what_a_layer_cannot_have(options: dict[str, Any], feature: str) -> None:
    with pytest.raises(NotImplementedError, match=f"does not support {feature}"):
        NPUAttentionImpl(HEADS, SIZE, SCALE, **options)


def test_defaults_of_a_layer() -> None:
    layer = NPUAttentionImpl(HEADS, SIZE, 1, logits_soft_cap=0.0)
    assert layer.num_kv_heads == HEADS
    assert layer.scale == 1.0


def test_a_profile_run_gives_zeros() -> None:
    layer = NPUAttentionImpl(HEADS, SIZE, SCALE, KV_HEADS)
    output = torch.ones(3, HEADS, SIZE, device="npu")
    nothing = torch.empty(0, device="npu")
    found = layer.forward(None, nothing, nothing, nothing, nothing, None, output)
    assert found is output
    assert not output.any()


def dense(query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
    """Attention of a whole sequence in float64, as its definition has it."""
    key, value = (
        x.double().repeat_interleave(HEADS // KV_HEADS, 1) for x in (key, value)
    )
    scores = torch.einsum("qhd,khd->hqk", query.double(), key) * SCALE
    places = torch.arange(len(key))
    distance = places[:, None] - places[None, :]
    hidden = distance < 0
    if window is not None:
        hidden |= distance >= window
    scores.masked_fill_(hidden, -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value)


def picked(tensors: list[Tensor], starts: list[int], lengths: list[int]) -> Tensor:
    """The rows of a step, of its first requests."""
    places = zip(tensors, starts, lengths, strict=False)
    return torch.cat([rows[start : start + length] for rows, start, length in places])


@pytest.mark.parametrize("shares", [False, True], ids=["own cache", "another's"])
@pytest.mark.parametrize("window", [None, 1, 5, 128, 1000])
def test_steps_of_ragged_requests(
    builder: NPUAttentionMetadataBuilder, window: int | None, shares: bool
) -> None:
    torch.manual_seed(3)
    totals = [150, 260, 9]
    # Prompts in parts that begin and end anywhere, then decodes.
    steps = [[100, 131, 8], [48, 128, 1], [1, 1], [1]]
    query, key, value = (
        [torch.randn(total, heads, SIZE) for total in totals]
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    wanted = [dense(*x, window) for x in zip(query, key, value, strict=True)]
    options = {"kv_sharing_target_layer_name": "other"} if shares else {}
    layer = NPUAttentionImpl(
        HEADS, SIZE, SCALE, KV_HEADS, sliding_window=window, **options
    )
    cache = torch.randn(2, 10, BLOCK, KV_HEADS, SIZE).npu()
    if shares:
        # What the layer is given itself must not be stored.
        for request, total in enumerate(totals):
            places = slots(request, 0, total)
            cache[0].view(-1, KV_HEADS, SIZE)[places] = key[request].npu()
            cache[1].view(-1, KV_HEADS, SIZE)[places] = value[request].npu()
    done = [0, 0, 0]
    for lengths in steps:
        starts = done[: len(lengths)]
        new = picked(query, starts, lengths)
        given = [picked(x, starts, lengths) for x in (key, value)]
        if shares:
            given = [torch.zeros_like(x) for x in given]
        # A batch may be longer than its tokens.
        longer = [torch.nn.functional.pad(x, (0, 0, 0, 0, 0, 1)) for x in (new, *given)]
        output = torch.full_like(longer[0], 7.0).npu()
        metadata = builder.build(0, common(lengths, starts))
        found = layer.forward(None, *(x.npu() for x in longer), cache, metadata, output)
        torch.testing.assert_close(
            found[:-1].cpu().double(),
            picked(wanted, starts, lengths),
            rtol=1e-4,
            atol=1e-5,
        )
        assert (found[-1] == 7).all()
        done[: len(lengths)] = [a + b for a, b in zip(starts, lengths, strict=True)]
    assert done == totals


def test_in_a_capture_the_graph_is_given_the_call(
    builder: NPUAttentionMetadataBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call attends to each step's own lengths, with a workspace it asked for."""
    from vllm.compilation.acl_graph import ACLGraph

    calls = []
    graph = SimpleNamespace(capture_host_call=lambda *args: calls.append(args))
    monkeypatch.setattr(ACLGraph, "capturing", graph)
    layer = NPUAttentionImpl(HEADS, SIZE, SCALE, KV_HEADS)
    cache = torch.randn(2, 10, BLOCK, KV_HEADS, SIZE).npu()
    query, output = (torch.randn(2, HEADS, SIZE).npu() for _ in range(2))
    key, value = (torch.randn(2, KV_HEADS, SIZE).npu() for _ in range(2))
    captured = builder.build(0, common([1, 1], [4, 9]))
    module = SimpleNamespace(layer_name="model.layer.3")
    layer.forward(module, query, key, value, cache, captured, output)
    ((name, call, metadata),) = calls
    assert (name, metadata) == ("model.layer.3", captured)
    monkeypatch.setattr(ACLGraph, "capturing", None)

    def attended(step: NPUAttentionMetadata) -> Tensor:
        eager = torch.empty_like(output)
        layer._attend(query, cache[0].flatten(2), cache[1].flatten(2), eager, step)
        return eager

    lengths = [captured, builder.build(0, common([1, 1], [3, 100]))]
    for step in lengths:
        assert not step.fitted
        call(step)
        assert step.fitted == {None}
        assert step.workspace.buffer is not None
        torch.testing.assert_close(output, attended(step), rtol=0, atol=0)
    assert not torch.equal(attended(lengths[0]), attended(lengths[1]))
