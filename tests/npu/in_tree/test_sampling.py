"""Top-k and top-p on an NPU, where no kernel of Triton is chosen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from vllm.v1.sample.ops import topk_topp_sampler
from vllm.v1.sample.ops.topk_topp_sampler import (
    apply_top_k_top_p,
    apply_top_k_top_p_pytorch,
)


@pytest.fixture(autouse=True)
def with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Triton is installed: vLLM takes its kernel from 8 rows on."""

    def kernel(*args: Tensor) -> Tensor:
        raise AssertionError("there is no Triton for an NPU")

    monkeypatch.setattr(topk_topp_sampler, "HAS_TRITON", True)
    monkeypatch.setattr(
        topk_topp_sampler, "apply_top_k_top_p_triton", kernel, raising=False
    )


def kept(logits: Tensor, k: Tensor | None, p: Tensor | None) -> list[set[int]]:
    """The tokens of each row that may be sampled, from the definition.

    The k best ones, and of those the fewest best ones whose probabilities among the k
    add up to p.
    """
    rows = []
    for row, values in enumerate(logits.double()):
        order = values.argsort(descending=True).tolist()
        order = order if k is None else order[: int(k[row])]
        if p is not None:
            probabilities = values[order].softmax(0)
            before = probabilities.cumsum(0) - probabilities
            order = [t for t, b in zip(order, before, strict=True) if b < float(p[row])]
        rows.append(set(order))
    return rows


@pytest.mark.parametrize("rows", [1, 7, 8, 33])
@pytest.mark.parametrize("kinds", ["k", "p", "kp"])
def test_what_may_be_sampled(rows: int, kinds: str) -> None:
    torch.manual_seed(rows)
    vocabulary = 50
    logits = 3 * torch.randn(rows, vocabulary)
    k = torch.randint(1, vocabulary, (rows,)) if "k" in kinds else None
    p = torch.rand(rows) * 0.8 + 0.1 if "p" in kinds else None
    on_npu = [None if x is None else x.npu() for x in (k, p)]
    found = apply_top_k_top_p(logits.npu(), *on_npu).cpu()
    assert [set(r.isfinite().nonzero()[:, 0].tolist()) for r in found] == kept(
        logits, k, p
    )
    torch.testing.assert_close(found[found.isfinite()], logits[found.isfinite()])
    upstream = apply_top_k_top_p_pytorch(logits.clone(), k, p)
    torch.testing.assert_close(found, upstream)


def test_without_limits_nothing_is_done() -> None:
    logits = torch.randn(9, 5).npu()
    assert apply_top_k_top_p(logits, None, None) is logits


def test_another_device_takes_the_kernel_still() -> None:
    """The condition is about NPUs alone."""
    logits = torch.randn(9, 5)
    with pytest.raises(AssertionError, match="no Triton"):
        apply_top_k_top_p(logits, torch.full((9,), 2), None)
