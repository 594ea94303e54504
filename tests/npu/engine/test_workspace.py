"""The workspace of attention in graphs, where lengths that shrink want a larger one.

The simulated operator's own size depends on shapes alone. Here a fake asks for most at
a length that is neither the captures' nor the longest, and for less with a window.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Reference
from small_engine import LAYERS, engine, generate, runner, write_model

PROMPTS = [[7, 3, 9] * 60, [2, 4] * 30, [5]]
COUNTS = (4, 9, 14)
PEAK = 65


def _size(seq_lens: list[int], sparse_mode: int) -> int:
    distance = abs(max(seq_lens) - PEAK)
    return (1 << 20) // (1 + distance) * (2 if sparse_mode == 3 else 1)


@pytest.mark.parametrize("sliding_first", [False, True])
def test_it_grows_for_each_kind_of_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sliding_first: bool
) -> None:
    import torch_npu
    from vllm.v1.attention.backends.npu_attn import NPUAttentionImpl

    kinds = ["full_attention", "sliding_attention"]
    if sliding_first:
        kinds.reverse()
    folder = write_model(
        tmp_path, "cwm", layer_types=kinds * (LAYERS // 2), sliding_window=50
    )
    asked: Counter[tuple[int, int]] = Counter()
    given: list[int] = []
    too_small: list[tuple[int, int]] = []

    def wanted(*args: Any, **arguments: Any) -> torch.Tensor:
        size = _size(arguments["actual_seq_lengths_kv"], arguments["sparse_mode"])
        asked[arguments["sparse_mode"], size] += 1
        return torch.empty(size, dtype=torch.uint8, device="npu")

    attend = NPUAttentionImpl._attend

    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        workspace = args[5] if len(args) > 5 else kwargs.get("workspace")
        if workspace is not None:
            needed = _size(args[4].seq_lens, self.sparse["sparse_mode"])
            if workspace.numel() < needed:
                # Not raised in a capture, which the allocator would not survive.
                too_small.append((workspace.numel(), needed))
            given.append(needed)
        attend(self, *args, **kwargs)

    name = "_npu_fused_infer_attention_score_get_max_workspace"
    monkeypatch.setattr(torch_npu, name, wanted)
    monkeypatch.setattr(NPUAttentionImpl, "_attend", checked)
    one_group = {"disable_hybrid_kv_cache_manager": True}
    with engine(folder, "FULL_DECODE_ONLY", **one_group) as llm:
        at_capture = max(given)
        # Short ones after long ones, one at a time.
        for prompt, count in zip(PROMPTS, COUNTS, strict=True):
            answers = generate(llm, [prompt], [count])
            Reference(folder, torch.float32).check([prompt], answers)
        # All layers in one group, with metadata and a workspace in common.
        assert [len(part) for part in runner(llm).attn_groups] == [1]
    assert not too_small
    assert max(given) > 2 * at_capture
    # Once a step for each kind, and not by every layer.
    assert {mode for mode, _ in asked} == {3, 4}
    assert 2 * asked.total() == len(given)
