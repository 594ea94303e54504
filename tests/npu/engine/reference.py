"""Whether an engine's tokens are the greedy ones, by transformers on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


class Reference:
    """transformers' model of a checkpoint, in the arithmetic of one dtype.

    It reads each request with all of its tokens at once: if each token is the greedy
    one after those before it, then all are what greedy decoding gives.
    """

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        import transformers

        self.dtype = dtype
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager"
        )
        # Of the engine's weights; which have been rounded if dtype is bfloat16.
        self.exact: Any = self.model
        if dtype != torch.float32:
            self.exact = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, attn_implementation="eager"
            ).float()

    @staticmethod
    def _logits(model: Any, prompt: Sequence[int], answer: Sequence[int]) -> Any:
        tokens = torch.tensor([[*prompt, *answer]])
        with torch.no_grad():
            return model(tokens).logits[0, len(prompt) - 1 : -1].float()

    def check(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
    ) -> None:
        """Assert that each token is the greedy one.

        In bfloat16 near ties fall either way. There a token's logit in float32 may be
        below the largest one by ``margin()``, and few of them are below it at all.
        """
        pairs = list(zip(prompts, answers, strict=True))
        exact = [self._logits(self.exact, *pair) for pair in pairs]
        margin = 0.0
        if self.model is not self.exact:
            rounded = [self._logits(self.model, *pair) for pair in pairs]
            # Of transformers' own rounding, here: the error of one logit. Two of them
            # decide which is the larger one, and both may be off by three times that.
            error = (torch.cat(rounded) - torch.cat(exact)).square().mean().sqrt()
            margin = 6 * float(error)
        below, total = 0, 0
        for i, (logits, answer) in enumerate(zip(exact, answers, strict=True)):
            chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
            gaps = logits.max(dim=1).values - chosen
            total += len(answer)
            below += int((gaps > 0).sum())
            assert gaps.max() <= margin, (
                f"request {i}: {answer} is below the greedy one by {gaps}, of {margin}"
            )
        assert below <= 0.1 * total, f"{below} of {total} tokens are not the greedy one"
        print(f"{below} of {total} tokens below the largest logit, margin {margin:.3f}")
