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

    def gaps(self, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
        """How far the logit of each token is below the largest one, in float32."""
        logits = self._logits(self.exact, prompt, answer)
        chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        return logits.max(dim=1).values - chosen

    def error(self, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
        """How far transformers' logits in ``dtype`` are from those in float32."""
        return (
            self._logits(self.model, prompt, answer)
            - self._logits(self.exact, prompt, answer)
        ).abs()
