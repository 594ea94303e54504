"""npu_fused_infer_attention_score_v2: plain, .out and the size of its workspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .attention_call import AttentionCall
from .forms import OUT_ARGUMENTS, takes_arguments_of
from .registry import body, refuse_unmodelled

OP = "npu::npu_fused_infer_attention_score_v2"
NAMES = {
    "mask": "atten_mask",
    "query_lengths": "actual_seq_qlen",
    "kv_lengths": "actual_seq_kvlen",
    "heads": "num_query_heads",
    "wants_lse": "return_softmax_lse",
}
MAX = 2147483647


def _call(
    op: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    pse_shift: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    block_table: Tensor | None = None,
    dequant_scale_query: Tensor | None = None,
    dequant_scale_key: Tensor | None = None,
    dequant_offset_key: Tensor | None = None,
    dequant_scale_value: Tensor | None = None,
    dequant_offset_value: Tensor | None = None,
    dequant_scale_key_rope: Tensor | None = None,
    quant_scale_out: Tensor | None = None,
    quant_offset_out: Tensor | None = None,
    quant_scale_p: Tensor | None = None,
    learnable_sink: Tensor | None = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float = 1.0,
    pre_tokens: int = MAX,
    next_tokens: int = MAX,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    block_size: int = 0,
    query_quant_mode: int = 0,
    key_quant_mode: int = 0,
    value_quant_mode: int = 0,
    inner_precise: int = 0,
    return_softmax_lse: bool = False,
    query_dtype: int | None = None,
    key_dtype: int | None = None,
    value_dtype: int | None = None,
    query_rope_dtype: int | None = None,
    key_rope_dtype: int | None = None,
    key_shared_prefix_dtype: int | None = None,
    value_shared_prefix_dtype: int | None = None,
    dequant_scale_query_dtype: int | None = None,
    dequant_scale_key_dtype: int | None = None,
    dequant_scale_value_dtype: int | None = None,
    dequant_scale_key_rope_dtype: int | None = None,
    out_dtype: int | None = None,
) -> AttentionCall:
    refuse_unmodelled(
        op,
        query_rope=query_rope,
        key_rope=key_rope,
        pse_shift=pse_shift,
        dequant_scale_query=dequant_scale_query,
        dequant_scale_key=dequant_scale_key,
        dequant_offset_key=dequant_offset_key,
        dequant_scale_value=dequant_scale_value,
        dequant_offset_value=dequant_offset_value,
        dequant_scale_key_rope=dequant_scale_key_rope,
        quant_scale_out=quant_scale_out,
        quant_offset_out=quant_offset_out,
        quant_scale_p=quant_scale_p,
        learnable_sink=learnable_sink,
        query_quant_mode=query_quant_mode,
        key_quant_mode=key_quant_mode,
        value_quant_mode=value_quant_mode,
        query_dtype=query_dtype,
        key_dtype=key_dtype,
        value_dtype=value_dtype,
        query_rope_dtype=query_rope_dtype,
        key_rope_dtype=key_rope_dtype,
        key_shared_prefix_dtype=key_shared_prefix_dtype,
        value_shared_prefix_dtype=value_shared_prefix_dtype,
        dequant_scale_query_dtype=dequant_scale_query_dtype,
        dequant_scale_key_dtype=dequant_scale_key_dtype,
        dequant_scale_value_dtype=dequant_scale_value_dtype,
        dequant_scale_key_rope_dtype=dequant_scale_key_rope_dtype,
        out_dtype=out_dtype,
    )
    return AttentionCall(
        op=op,
        names=NAMES,
        query=query,
        key=key,
        value=value,
        mask=atten_mask,
        query_lengths=actual_seq_qlen,
        kv_lengths=actual_seq_kvlen,
        block_table=block_table,
        heads=num_query_heads,
        kv_heads=num_key_value_heads,
        scale=softmax_scale,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        layout=input_layout,
        sparse_mode=sparse_mode,
        inner_precise=inner_precise,
        block_size=block_size,
        wants_lse=return_softmax_lse,
    )


@body(OP)
@takes_arguments_of(_call)
def npu_fused_infer_attention_score_v2(
    *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """As npu_fused_infer_attention_score, under other names.

    actual_seq_qlen, actual_seq_kvlen: its actual_seq_lengths and actual_seq_lengths_kv.
    num_query_heads: its num_heads; softmax_scale: its scale; return_softmax_lse: its
    softmax_lse_flag. Shapes, dtypes, results and errors are those of its docstring.
    Source: "torch_npu.npu_fused_infer_attention_score_v2" (Ascend Extension for
    PyTorch, API reference).
    """
    return _call(OP, *args, **kwargs).run()


@body(f"{OP}.out")
@takes_arguments_of(_call, *OUT_ARGUMENTS)
def npu_fused_infer_attention_score_v2_out(
    *args: Any,
    workspace: Tensor | None = None,
    out: Sequence[Tensor],
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """The plain form, written into out; the same bits.

    workspace and out: as for npu_fused_infer_attention_score.out, the size being what
    _npu_fused_infer_attention_score_v2_get_max_workspace gives.
    Raises what the plain form does, and ValueError for another out or a workspace with
    too few bytes.
    """
    return _call(f"{OP}.out", *args, **kwargs).run_into(workspace, out)


@body("npu::_npu_fused_infer_attention_score_v2_get_max_workspace")
@takes_arguments_of(_call)
def npu_fused_infer_attention_score_v2_get_max_workspace(
    *args: Any, **kwargs: Any
) -> Tensor:
    """A workspace for the .out form with these arguments: uint8, (bytes,).

    A simulated size, by the rule of
    _npu_fused_infer_attention_score_get_max_workspace.
    """
    op = "npu::_npu_fused_infer_attention_score_v2_get_max_workspace"
    return _call(op, *args, **kwargs).workspace()
