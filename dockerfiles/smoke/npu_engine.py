"""Runs in an image: vLLM's engine on device npu, judged by transformers on the CPU.

The argument is JSON: ``mode`` is ``platform`` (which one vLLM chooses, no engine),
``eager`` or a mode of graphs; with ``profile`` captures are traced and steps profiled.
"""

import collections
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_DISABLE_COMPILE_CACHE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="WARNING",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
)

from profiled import annotations, generate, profiler_options
from result import give

SIZES = [1, 2, 4]
PROMPTS = [[3, 17, 91, 5], [200, 10], [7, 7, 7, 30, 41, 11, 60]]
TOKENS = 16


def write_model(folder: Path) -> None:
    """A small Llama whose random weights are wide enough for tokens to differ."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    torch.manual_seed(20)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def platform() -> dict:
    from vllm.platforms import current_platform

    kind = type(current_platform)
    return {
        "platform": f"{kind.__module__}.{kind.__qualname__}",
        "device": current_platform.device_type,
    }


def not_greedy(folder: Path, answers: list[list[int]]) -> int:
    """How many tokens are not the likeliest ones after those before them."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    wrong = 0
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *answer]])).logits[0]
        wanted = logits[len(prompt) - 1 : -1].argmax(dim=1)
        wrong += int((wanted != torch.tensor(answer)).sum())
    return wrong


def run(mode: str, profile: bool) -> dict:
    from vllm import LLM, SamplingParams

    folder = Path(tempfile.mkdtemp())
    model, traces = folder / "model", folder / "traces"
    write_model(model)
    options = {"enforce_eager": True}
    if mode != "eager":
        graphs = {"cudagraph_mode": mode, "cudagraph_capture_sizes": SIZES}
        options = {"compilation_config": graphs}
    if profile:
        options["profiler_config"] = profiler_options(traces)
    began = time.monotonic()
    llm = LLM(
        model=str(model),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=128,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        num_gpu_blocks_override=64,
        gpu_memory_utilization=0.1,
        **options,
    )
    started = time.monotonic() - began
    sampling = SamplingParams(
        temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False
    )
    tokens = generate(llm, PROMPTS, sampling, profile)
    return {
        **platform(),
        "tokens": tokens,
        "distinct": len({token for row in tokens for token in row}),
        "not_greedy": not_greedy(model, tokens),
        "seconds_to_start": round(started, 1),
        "sizes": SIZES,
        **capture_traces(traces / "capture_traces"),
        "annotations": annotations(traces),
    }


def capture_traces(folder: Path) -> dict:
    """How many traces of each mode there are, and what their index says."""
    names = [path.name for path in folder.glob("*.json.gz")]
    modes = [re.findall(r"_([A-Z_]+)\.json\.gz$", name)[0] for name in names]
    index = folder / "execution_details.json"
    return {
        "trace_modes": dict(collections.Counter(modes)),
        "index": json.loads(index.read_text()) if index.exists() else [],
    }


wanted = json.loads(sys.argv[1])
if wanted["mode"] == "platform":
    give(platform())
else:
    give(run(wanted["mode"], bool(wanted.get("profile"))))
