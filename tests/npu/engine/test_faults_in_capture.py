"""What must not happen in a capture is an error, with the remedy if it has one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Reference
from small_engine import LAYERS, SIZES, engine, generate, write_model


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise", ["a fault in a capture"]),
        ("item", ["aten::_local_scalar_dense reads device memory on the host"]),
        (
            "streams",
            [
                "RuntimeError The NPU has no streams left for another graph. Capture "
                "fewer sizes (cudagraph_capture_sizes), or whole graphs of decode "
                "steps only (cudagraph_mode FULL_DECODE_ONLY), which need one stream "
                "each.",
                "error code is 207008",
                "2 graphs use 2 of 2 streams",
            ],
        ),
    ],
)
def test_it_is_told_and_names_are_the_same_after_it(
    tmp_path: Path, fault: str, told: list[str]
) -> None:
    program = Path(__file__).with_name("fault_in_capture.py")
    command = [sys.executable, str(program), str(tmp_path), fault]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "restored", done.stdout + done.stderr
    for text in told:
        assert text in done.stdout


READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "if": lambda x: bool((x > 0).any()),
    "device": lambda _: torch.npu.synchronize(),
    "stream": lambda _: torch.npu.current_stream().synchronize(),
    "another stream": lambda _: torch.npu.default_stream().synchronize(),
    "accelerator": lambda _: torch.accelerator.synchronize(),
}


def test_each_way_to_wait_in_the_attention_of_a_capture_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So an engine that starts does not wait; and outside of captures all are fine."""
    from vllm.compilation.acl_graph import ACLGraph
    from vllm.v1.attention.backends.npu_attn import NPUAttentionImpl

    refused: dict[str, list[str]] = {name: [] for name in READS}
    allowed: list[str] = []
    attend = NPUAttentionImpl.forward

    def waits(
        self: Any, layer: Any, query: torch.Tensor, *others: Any, **named: Any
    ) -> Any:
        for name, read in READS.items():
            if ACLGraph.capturing is None:
                read(query)
                allowed.append(name)
                continue
            try:
                read(query)
            except RuntimeError as error:
                refused[name].append(str(error))
        return attend(self, layer, query, *others, **named)

    folder = write_model(tmp_path, "llama")
    with monkeypatch.context() as patch:
        patch.setattr(NPUAttentionImpl, "forward", waits)
        with engine(folder, "FULL_DECODE_ONLY") as llm:
            tokens = generate(llm, [[3, 1, 4]], [5])
    Reference(folder, torch.float32).check([[3, 1, 4]], tokens)
    counts = {name: len(errors) for name, errors in refused.items()}
    assert counts == dict.fromkeys(READS, len(SIZES) * LAYERS)
    assert set(allowed) == set(READS)
