"""What the attention bodies refuse, and the sizes of their workspaces."""

from __future__ import annotations

from inspect import signature

import pytest
import torch
from simulated.bodies import BODIES
from test_bodies_attention import (
    BAND,
    BLOCK,
    LEFT_UP,
    NAMES_OF_V2,
    RIGHT_DOWN,
    V1,
    V2,
    Sequences,
    arguments,
    call,
    paged_arguments,
    triangle,
)

SHAPE = [(2, 5), (1, 4)]


def base(layout="TND", shape=SHAPE, by_block="flat", **more):
    sequences = Sequences.drawn(shape, (4, 2), torch.float32, 0)
    return arguments(sequences, layout, by_block=by_block, **more)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"actual_seq_lengths": [2, 4]}, r"seq_lengths=\[2, 4\] .* the 3 tokens"),
        ({"actual_seq_lengths": [3, 2, 3]}, r"seq_lengths=\[3, 2, 3\]"),
        ({"actual_seq_lengths": None}, "actual_seq_lengths=None has to be given"),
        ({"actual_seq_lengths_kv": None}, "lengths_kv=None has to be given"),
        ({"actual_seq_lengths_kv": [5]}, r"lengths_kv=\[5\] is not of 2 sequences"),
        ({"actual_seq_lengths_kv": [5, -1]}, r"lengths_kv=\[5, -1\]"),
        ({"actual_seq_lengths_kv": [5, 4 * BLOCK]}, "block_table=.* too few columns"),
        ({"block_table": torch.zeros(1, 4).int()}, "block_table=.*not of 2 sequences"),
        ({"block_table": torch.zeros(2, 4)}, "block_table=.*not int32"),
        ({"block_table": torch.full((2, 4), 99).int()}, r"block_table=\[99, 99\]"),
        ({"block_size": 2 * BLOCK}, "key=.* is not .blocks, 8"),
        ({"block_size": 0}, "block_size=0"),
        ({"num_heads": 0}, "num_heads=0"),
        ({"num_heads": 2}, "query=.* has not 2 heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3 does not divide the 4"),
        ({"num_key_value_heads": 0}, "key=.* head size"),
        ({"inner_precise": 4}, "inner_precise=4"),
        ({"input_layout": "BSND"}, "query=.* not laid out as BSND"),
        ({"sparse_mode": RIGHT_DOWN}, "atten_mask=None .* of sparse_mode 3"),
        (
            {"sparse_mode": LEFT_UP, "atten_mask": torch.ones(9, 9)},
            "atten_mask=.* 2048",
        ),
        ({"sparse_mode": BAND, "atten_mask": ~triangle()}, "atten_mask=.* diagonal"),
        ({"sparse_mode": 1}, "atten_mask=None has to be given"),
    ],
)
def test_wrong_arguments(changed, match) -> None:
    tensors, keywords = base()
    with pytest.raises(ValueError, match=f"^{V1}: argument .*{match}"):
        call(V1, tensors, keywords | changed)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"actual_seq_lengths": [3, 1]}, r"seq_lengths=\[3, 1\] leaves 0 to 2"),
        ({"actual_seq_lengths_kv": [6, 4]}, r"lengths_kv=\[6, 4\] leaves 0 to 5"),
        ({"actual_seq_lengths_kv": []}, r"lengths_kv=\[\] is not of 2 sequences"),
        ({"sparse_mode": 1, "atten_mask": torch.zeros(2, 4)}, "smaller than 2, 5"),
        ({"atten_mask": torch.zeros(3, 2, 5)}, "atten_mask=.* not of 2 sequences"),
    ],
)
def test_lengths_and_masks_of_batch_layouts(changed, match) -> None:
    tensors, keywords = base("BSND", by_block=None)
    with pytest.raises(ValueError, match=f"^{V1}: argument .*{match}"):
        call(V1, tensors, keywords | changed)


def test_one_length_stands_for_every_sequence() -> None:
    tensors, keywords = base("BSND", [(2, 5), (2, 5)], by_block=None)
    wanted = call(V1, tensors, keywords)[0]
    short = {"actual_seq_lengths": [2], "actual_seq_lengths_kv": [5]}
    assert torch.equal(call(V1, tensors, keywords | short)[0], wanted)
    none = {"actual_seq_lengths": None, "actual_seq_lengths_kv": None}
    assert torch.equal(call(V1, tensors, keywords | none)[0], wanted)


ONE = torch.ones(1)
TENSORS_OF_V1 = """
pse_shift dequant_scale1 quant_scale1 dequant_scale2 quant_scale2 quant_offset2
antiquant_scale antiquant_offset key_antiquant_scale key_antiquant_offset
value_antiquant_scale value_antiquant_offset query_padding_size kv_padding_size
key_shared_prefix value_shared_prefix query_rope key_rope key_rope_antiquant_scale
"""
TENSORS_OF_V2 = """
query_rope key_rope pse_shift dequant_scale_query dequant_scale_key dequant_offset_key
dequant_scale_value dequant_offset_value dequant_scale_key_rope quant_scale_out
quant_offset_out quant_scale_p learnable_sink
"""
NUMBERS_OF_V1 = "antiquant_mode key_antiquant_mode value_antiquant_mode"
NUMBERS_OF_V2 = """
query_quant_mode key_quant_mode value_quant_mode query_dtype key_dtype value_dtype
query_rope_dtype key_rope_dtype key_shared_prefix_dtype value_shared_prefix_dtype
dequant_scale_query_dtype dequant_scale_key_dtype dequant_scale_value_dtype
dequant_scale_key_rope_dtype out_dtype
"""
UNMODELLED = {
    V1: {
        **dict.fromkeys(TENSORS_OF_V1.split(), ONE),
        **dict.fromkeys(NUMBERS_OF_V1.split(), 1),
        "actual_shared_prefix_len": [1],
        "sparse_mode": 5,
        "input_layout": "NTD",
    },
    V2: {
        **dict.fromkeys(TENSORS_OF_V2.split(), ONE),
        **dict.fromkeys(NUMBERS_OF_V2.split(), 1),
        "sparse_mode": 6,
        "input_layout": "TND_NTD",
    },
}


def test_every_argument_is_modelled_or_refused() -> None:
    for version, names in UNMODELLED.items():
        keywords = {"atten_mask", "pre_tokens", "next_tokens", "inner_precise"}
        keywords |= {"query", "key", "value", "softmax_lse_flag", *base()[1]}
        if version == V2:
            keywords = {NAMES_OF_V2.get(name, name) for name in keywords}
        assert set(signature(BODIES[version]).parameters) == keywords | set(names)


@pytest.mark.parametrize("form", ["", ".out", "workspace"])
@pytest.mark.parametrize(
    ("version", "name"), [(v, n) for v, names in UNMODELLED.items() for n in names]
)
def test_unmodelled_arguments(version, name, form) -> None:
    tensors, keywords = base()
    changed = keywords | {name: UNMODELLED[version][name]}
    if form == ".out":
        changed["out"] = [torch.zeros(3, 4, 12), ONE]
    with pytest.raises(NotImplementedError, match=f"^npu::.*: argument {name}="):
        call(version, tensors, changed, form)


def test_a_mask_of_ones_own_with_tnd_is_unmodelled() -> None:
    tensors, keywords = base(atten_mask=torch.zeros(5, 5))
    with pytest.raises(NotImplementedError, match="argument atten_mask="):
        call(V1, tensors, keywords)


def test_int8_and_caches_in_runs_are_unmodelled() -> None:
    (query, key, value), keywords = base()
    with pytest.raises(NotImplementedError, match=r"argument key=.*int8"):
        call(V1, [query, key.to(torch.int8), value], keywords)
    with pytest.raises(NotImplementedError, match=r"argument query=.*int8"):
        call(V1, [query.to(torch.int8), key, value], keywords)
    with pytest.raises(NotImplementedError, match=r"argument key=.*, 1, 1\)"):
        call(V1, [query, key[..., None, None], value], keywords)


def test_a_cache_by_head_does_not_go_with_bsnd() -> None:
    tensors, keywords = base("BSND", by_block="by head")
    with pytest.raises(ValueError, match="argument key="):
        call(V1, tensors, keywords)


def test_rows_that_see_nothing() -> None:
    causal = {"sparse_mode": RIGHT_DOWN, "atten_mask": triangle()}
    tensors, keywords = base(shape=[(3, 1), (1, 4)], **causal)
    attention, _ = call(V1, tensors, keywords)
    assert not attention[:2].any()
    assert attention[2:].all()
    with pytest.raises(NotImplementedError, match="softmax_lse_flag=True"):
        call(V1, tensors, keywords | {"softmax_lse_flag": True})
    with pytest.raises(NotImplementedError, match="return_softmax_lse=True"):
        call(V2, tensors, keywords | {"softmax_lse_flag": True})
    blind = {"atten_mask": torch.ones(2, 5, dtype=torch.bool)}
    tensors, keywords = base("BSND", by_block=None, **blind)
    with pytest.raises(NotImplementedError, match="inner_precise=0"):
        call(V1, tensors, keywords)
    attention, _ = call(V1, tensors, keywords | {"inner_precise": 3})
    assert not attention[0].any()


def test_sequences_without_keys_give_zeros() -> None:
    tensors, keywords = base()
    attention, _ = call(V1, tensors, keywords | {"actual_seq_lengths_kv": [5, 0]})
    assert attention[:2].all()
    assert not attention[2:].any()


def test_the_simulated_workspace_grows_with_the_work_and_not_with_lengths() -> None:
    def size(keywords=None, tensors=None):
        my_tensors, mine = base()
        got = call(V1, tensors or my_tensors, mine | (keywords or {}), "workspace")
        assert (got.dtype, got.dim()) == (torch.uint8, 1)
        return got.numel()

    (query, key, value), _ = base()
    wider = {"block_table": torch.zeros(2, 9).int()}
    assert size(wider) > size()
    assert size(tensors=[query.repeat(2, 1, 1), key, value]) > size()
    more_heads = {"num_heads": 8, "num_key_value_heads": 2}
    assert size(more_heads, [query.repeat(1, 2, 1), key, value]) > size()
    assert size({"actual_seq_lengths_kv": [1, 1]}) == size()


@pytest.mark.parametrize("version", [V1, V2])
def test_a_workspace_with_a_byte_too_few(version) -> None:
    tensors, keywords = base()
    needed = len(call(version, tensors, keywords, "workspace"))
    out = [torch.full((3, 4, 12), 7.0), torch.empty(1)]
    small = torch.empty(needed - 1, dtype=torch.uint8)
    more = {"workspace": small, "out": out}
    with pytest.raises(
        ValueError, match=f"{needed - 1} bytes, fewer than the {needed}"
    ):
        call(version, tensors, keywords | more, ".out")
    assert (out[0] == 7).all()


@pytest.mark.parametrize(
    "out",
    [
        [torch.zeros(3, 4, 12)],
        [torch.zeros(3, 4, 8), torch.zeros(3, 4, 1)],
        [torch.zeros(3, 4, 12).half(), torch.zeros(3, 4, 1)],
        [torch.zeros(3, 4, 12), torch.zeros(1)],
    ],
)
def test_an_out_that_does_not_fit(out) -> None:
    tensors, keywords = base(softmax_lse_flag=True)
    with pytest.raises(ValueError, match=r"score\.out: argument out="):
        call(V1, tensors, keywords | {"out": out}, ".out")


def paged_call(**changed):
    names = signature(BODIES["atb::_npu_paged_attention"]).parameters
    sequences = Sequences.drawn([(1, 5), (1, 4)], (4, 2), torch.float32, 0, 8)
    args = dict(zip(names, paged_arguments(sequences)[0], strict=False))
    return args | changed


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"context_lens": torch.tensor([5])}, r"context_lens=\[5\] is not 2"),
        ({"context_lens": torch.tensor([5, 0])}, r"context_lens=\[5, 0\]"),
        ({"context_lens": torch.tensor([99, 4])}, "block_table=.* too few columns"),
        ({"block_table": torch.zeros(1, 4).int()}, "block_table="),
        ({"block_table": torch.full((2, 4), -1).int()}, r"block_table=\[-1, -1\]"),
        ({"num_heads": 8}, "argument query="),
        ({"num_kv_heads": 3}, "num_kv_heads=3"),
        ({"num_kv_heads": 4}, "argument key_cache="),
        ({"out": torch.zeros(2, 4, 9)}, "argument out="),
        (
            {"workspace": torch.empty(3, dtype=torch.uint8)},
            "workspace=.* has 3 bytes, fewer than the",
        ),
    ],
)
def test_paged_attention_refuses(changed, match) -> None:
    with pytest.raises(ValueError, match=f"^atb::_npu_paged_attention: .*{match}"):
        BODIES["atb::_npu_paged_attention"](**paged_call(**changed))
