"""npu_fused_infer_attention_score: plain, .out and the size of its workspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .attention_call import AttentionCall
from .forms import OUT_ARGUMENTS, takes_arguments_of
from .registry import body, refuse_unmodelled

OP = "npu::npu_fused_infer_attention_score"
NAMES = {
    "mask": "atten_mask",
    "query_lengths": "actual_seq_lengths",
    "kv_lengths": "actual_seq_lengths_kv",
    "heads": "num_heads",
    "wants_lse": "softmax_lse_flag",
}
MAX = 2147483647


def _call(
    op: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pse_shift: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    dequant_scale1: Tensor | None = None,
    quant_scale1: Tensor | None = None,
    dequant_scale2: Tensor | None = None,
    quant_scale2: Tensor | None = None,
    quant_offset2: Tensor | None = None,
    antiquant_scale: Tensor | None = None,
    antiquant_offset: Tensor | None = None,
    key_antiquant_scale: Tensor | None = None,
    key_antiquant_offset: Tensor | None = None,
    value_antiquant_scale: Tensor | None = None,
    value_antiquant_offset: Tensor | None = None,
    block_table: Tensor | None = None,
    query_padding_size: Tensor | None = None,
    kv_padding_size: Tensor | None = None,
    key_shared_prefix: Tensor | None = None,
    value_shared_prefix: Tensor | None = None,
    actual_shared_prefix_len: Sequence[int] | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    key_rope_antiquant_scale: Tensor | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = MAX,
    next_tokens: int = MAX,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    inner_precise: int = 0,
    block_size: int = 0,
    antiquant_mode: int = 0,
    key_antiquant_mode: int = 0,
    value_antiquant_mode: int = 0,
    softmax_lse_flag: bool = False,
) -> AttentionCall:
    refuse_unmodelled(
        op,
        pse_shift=pse_shift,
        dequant_scale1=dequant_scale1,
        quant_scale1=quant_scale1,
        dequant_scale2=dequant_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
        antiquant_scale=antiquant_scale,
        antiquant_offset=antiquant_offset,
        key_antiquant_scale=key_antiquant_scale,
        key_antiquant_offset=key_antiquant_offset,
        value_antiquant_scale=value_antiquant_scale,
        value_antiquant_offset=value_antiquant_offset,
        query_padding_size=query_padding_size,
        kv_padding_size=kv_padding_size,
        key_shared_prefix=key_shared_prefix,
        value_shared_prefix=value_shared_prefix,
        actual_shared_prefix_len=actual_shared_prefix_len,
        query_rope=query_rope,
        key_rope=key_rope,
        key_rope_antiquant_scale=key_rope_antiquant_scale,
        antiquant_mode=antiquant_mode,
        key_antiquant_mode=key_antiquant_mode,
        value_antiquant_mode=value_antiquant_mode,
    )
    return AttentionCall(
        op=op,
        names=NAMES,
        query=query,
        key=key,
        value=value,
        mask=atten_mask,
        query_lengths=actual_seq_lengths,
        kv_lengths=actual_seq_lengths_kv,
        block_table=block_table,
        heads=num_heads,
        kv_heads=num_key_value_heads,
        scale=scale,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        layout=input_layout,
        sparse_mode=sparse_mode,
        inner_precise=inner_precise,
        block_size=block_size,
        wants_lse=softmax_lse_flag,
    )


@body(OP)
@takes_arguments_of(_call)
def npu_fused_infer_attention_score(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """Attention of new tokens over the keys and values of their sequences.

    query, key, value: float32, float16 or bfloat16, one dtype, laid out as input_layout
    says: "BSH", "BSND", "BNSD" or "TND". Computed in float32.
    actual_seq_lengths(_kv): tokens. For TND both have to be given, cumulative, the last
    one all the tokens there are. Else, and for paged keys always, of each sequence; one
    length stands for all; query rows beyond theirs come back NaN.
    block_table: int32, (sequences, columns), makes key and value a paged cache:
    (blocks, block_size, num_key_value_heads * size), or, for BNSD and TND, (blocks,
    num_key_value_heads, block_size, size).
    num_key_value_heads: 0 is num_heads; it has to divide it.
    sparse_mode: 0, what atten_mask (True hides) and then the band of pre_tokens and
    next_tokens from the left upper corner leave, all without atten_mask; 1, what
    atten_mask leaves; 2 and 3, causal from the left upper and the right lower corner;
    4, the band from the right lower corner. Modes 0 and 1 take a whole mask: (S, KV),
    (B or 1, S, KV) or (B or 1, 1, S, KV), for S = 1 (B, KV) too, or larger; not for
    TND. The others take the triangle of 2048 * 2048. pre_tokens and next_tokens have no
    effect in modes 1 to 3, nor have modes 2 to 4 for S = 1.
    inner_precise: 0 to 3; a row that sees nothing is zero in modes 2 to 4 and without
    keys, and, with 2 and 3, in modes 0 and 1.
    Returns attention, as query with value's head size, and the log-sum-exp, float32:
    (T, N, 1) for TND, else (B, N, S, 1); (0,) without softmax_lse_flag, as the meta
    function has it.
    Raises ValueError for shapes, lengths or a mask against these rules;
    NotImplementedError for every other option, a mask with TND, a row that sees nothing
    with softmax_lse_flag or, in modes 0 and 1, with inner_precise 0 and 1.
    Source: "torch_npu.npu_fused_infer_attention_score" (Ascend Extension for PyTorch,
    API reference).
    """
    return _call(OP, *args, **kwargs).run()


@body(f"{OP}.out")
@takes_arguments_of(_call, *OUT_ARGUMENTS)
def npu_fused_infer_attention_score_out(
    *args: Any,
    workspace: Tensor | None = None,
    out: Sequence[Tensor],
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """The plain form, written into out; the same bits.

    workspace: None, where the operator allocates for itself, or at least as many bytes
    as _npu_fused_infer_attention_score_get_max_workspace gives for the same arguments.
    out: attention and log-sum-exp, of the shapes and dtypes of the plain form; without
    softmax_lse_flag the second is left alone and may have any shape. Returned as given.
    Raises what the plain form does, and ValueError for another out or a workspace with
    too few bytes.
    """
    return _call(f"{OP}.out", *args, **kwargs).run_into(workspace, out)


@body("npu::_npu_fused_infer_attention_score_get_max_workspace")
@takes_arguments_of(_call)
def npu_fused_infer_attention_score_get_max_workspace(
    *args: Any, **kwargs: Any
) -> Tensor:
    """A workspace for the .out form with these arguments: uint8, (bytes,).

    The size is simulated. It grows with query tokens, heads, the head size of value and
    the keys that the shapes allow a sequence (the columns of block_table times
    block_size, or key's tokens), and not with the lengths on the host: a graph is
    captured once and its lengths change.
    Raises what the plain form does for shapes and options.
    """
    op = "npu::_npu_fused_infer_attention_score_get_max_workspace"
    return _call(op, *args, **kwargs).workspace()
