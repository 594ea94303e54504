"""Two runners in one process leave names of torch.cuda as they were."""

from __future__ import annotations

from pathlib import Path

import torch
from fault_in_capture import names
from reference import Reference
from small_engine import engine, generate, write_model

PROMPTS = [[3, 1, 4], [1] * 90, [5, 9, 2, 6, 5]]
COUNTS = (9, 4, 7)


def test_two_engines_alive_at_once_and_one_after_them(tmp_path: Path) -> None:
    """Both capture and replay; steps of one come between those of the other."""
    llama = write_model(tmp_path / "llama", "llama")
    qwen3 = write_model(tmp_path / "qwen3", "qwen3")
    of_llama, of_qwen3 = (Reference(x, torch.float32) for x in (llama, qwen3))
    before = names()
    with engine(llama, "FULL_DECODE_ONLY") as first:
        with engine(qwen3, "FULL_AND_PIECEWISE") as second:
            assert names() == before
            for _ in range(2):
                of_llama.check(PROMPTS, generate(first, PROMPTS, COUNTS))
                of_qwen3.check(PROMPTS, generate(second, PROMPTS, COUNTS))
            assert names() == before
        assert names() == before
    with engine(llama, "FULL_DECODE_ONLY") as third:
        of_llama.check(PROMPTS, generate(third, PROMPTS, COUNTS))
    assert names() == before
