"""A toy decode loop of a paged-attention model, run eagerly or by a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch_npu

REQUESTS, HEADS, KV_HEADS, HEAD_SIZE = 4, 8, 2, 16
BLOCK, BLOCKS, VOCABULARY, LAYERS, STEPS = 4, 40, 64, 2, 10
HIDDEN = HEADS * HEAD_SIZE

Mode = Literal["eager", "task groups", "dispatched", "stale"]
attention = torch_npu.npu_fused_infer_attention_score


@dataclass
class Model:
    """Random weights, the same for each instance, and an empty KV cache."""

    weights: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        kv = KV_HEADS * HEAD_SIZE
        shapes = {
            "embedding": (VOCABULARY, HIDDEN, 0.5),
            "q": (HIDDEN, HIDDEN, 0.1),
            "k": (HIDDEN, kv, 0.1),
            "v": (HIDDEN, kv, 0.1),
            "out": (HIDDEN, HIDDEN, 0.5),
            "head": (HIDDEN, VOCABULARY, 0.5),
        }
        for name, (rows, columns, scale) in shapes.items():
            values = torch.randn(rows, columns, generator=generator) * scale
            self.weights[name] = values.npu()
        self.ones = torch.ones(HIDDEN, device="npu")
        self.ids = torch.arange(REQUESTS, device="npu")
        self.slots = torch.zeros(REQUESTS, dtype=torch.int32, device="npu")
        self.table = torch.arange(REQUESTS * 8).reshape(REQUESTS, 8).int().npu()
        shape = (BLOCKS, BLOCK, KV_HEADS, HEAD_SIZE)
        self.caches = [
            (torch.zeros(shape, device="npu"), torch.zeros(shape, device="npu"))
            for _ in range(LAYERS)
        ]
        # What an update of the task groups repeats, a layer each.
        self.groups: list[tuple[int, Any, dict[str, Any]]] = []

    def forward(self, lengths: list[int], in_task_groups: bool) -> torch.Tensor:
        """Logits of one token a request, whose sequences have ``lengths`` with it."""
        w = self.weights
        x = w["embedding"][self.ids]
        for keys, values in self.caches:
            h, _ = torch_npu.npu_rms_norm(x, self.ones, 1e-6)
            q = (h @ w["q"]).view(REQUESTS, HEADS, HEAD_SIZE)
            k = (h @ w["k"]).view(REQUESTS, KV_HEADS, HEAD_SIZE)
            v = (h @ w["v"]).view(REQUESTS, KV_HEADS, HEAD_SIZE)
            torch_npu._npu_reshape_and_cache(k, v, keys, values, self.slots)
            flat = (keys.view(BLOCKS, BLOCK, -1), values.view(BLOCKS, BLOCK, -1))
            call = {
                "query": q,
                "key": flat[0],
                "value": flat[1],
                "actual_seq_lengths": list(range(1, REQUESTS + 1)),
                "block_table": self.table,
                "num_heads": HEADS,
                "num_key_value_heads": KV_HEADS,
                "block_size": BLOCK,
                "input_layout": "TND",
                "scale": HEAD_SIZE**-0.5,
            }
            if in_task_groups:
                out = self._grouped(call, lengths)
            else:
                out, _ = attention(**call, actual_seq_lengths_kv=lengths)
            x = x + out.reshape(REQUESTS, HIDDEN) @ w["out"]
        return x @ w["head"]

    def _grouped(self, call: dict[str, Any], lengths: list[int]) -> torch.Tensor:
        stream, event = torch.npu.current_stream(), torch.npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        size = torch_npu._npu_fused_infer_attention_score_get_max_workspace
        # For the longest sequence that the table holds.
        call["workspace"] = size(**call, actual_seq_lengths_kv=[8 * BLOCK] * REQUESTS)
        call["out"] = [torch.empty_like(call["query"]), torch.empty(1, device="npu")]
        torch.npu.graph_task_group_begin(stream)
        attention.out(**call, actual_seq_lengths_kv=lengths)
        handle = torch.npu.graph_task_group_end(stream)
        self.groups.append((handle, event, call))
        return call["out"][0]

    def update(self, stream: Any, lengths: list[int]) -> None:
        """Give the replay that waits for them the lengths of its step."""
        with torch.npu.stream(stream):
            for handle, event, call in self.groups:
                torch.npu.graph_task_update_begin(stream, handle)
                attention.out(**call, actual_seq_lengths_kv=lengths)
                torch.npu.graph_task_update_end(stream)
                event.record(stream)


def decode(mode: Mode) -> torch.Tensor:
    """Logits of each step, of shape (STEPS, REQUESTS, VOCABULARY), on the CPU."""
    model, steps = Model(), []
    stream = torch.npu.Stream()
    if mode != "eager":
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, auto_dispatch_capture=mode == "dispatched"):
            logits = model.forward([1] * REQUESTS, mode == "task groups")
    ids = torch.arange(REQUESTS)
    for step in range(STEPS):
        model.ids.copy_(ids)
        model.slots.copy_(torch.arange(REQUESTS, dtype=torch.int32) * 8 * BLOCK + step)
        lengths = [step + 1] * REQUESTS
        if mode == "eager":
            logits = model.forward(lengths, False)
        else:
            graph.replay()
            if mode == "task groups":
                model.update(stream, lengths)
            elif mode == "dispatched":
                graph.update(cpu_update_input=[{"actual_seq_lengths_kv": lengths}])
        torch.npu.synchronize()
        steps.append(logits.cpu().clone())
        ids = steps[-1].argmax(-1)
    return torch.stack(steps)
