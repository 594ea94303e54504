"""Runs in an image: vLLM's real engine with a small random Llama, greedily.

With ``{"profile": true}`` as argument the new profiler options are on and three steps
are profiled; the annotations of the steps are part of the result.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_ALLOW_INSECURE_SERIALIZATION="1",
    HF_HUB_OFFLINE="1",
    # The image has no compiler, and a few functions are compiled even in eager mode.
    TORCH_COMPILE_DISABLE="1",
)

from profiled import annotations, generate, profiler_options
from result import give

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROMPTS = [[3, 17, 91, 5], [200, 10], [7, 7, 7, 300, 401, 11, 60]]
TOKENS = 24


def spread(model) -> int:
    """Give the weights random values of a size that makes tokens differ.

    Dummy weights are so small that every logit is nearly the same.
    """
    import torch

    generator = torch.Generator().manual_seed(20)
    count = 0
    for _, weight in sorted(model.named_parameters()):
        if weight.dim() > 1:
            values = torch.randn(weight.shape, generator=generator) * 0.2
            weight.data.copy_(values)
            count += 1
    return count


def run(profile: bool) -> dict:
    from vllm import LLM, SamplingParams

    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(LLAMA))
    traces = folder / "traces"
    options = {}
    if profile:
        options["profiler_config"] = profiler_options(traces)
    began = time.monotonic()
    llm = LLM(
        model=str(folder),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=128,
        max_num_seqs=8,
        seed=0,
        **options,
    )
    weights = llm.apply_model(spread)[0]
    started = time.monotonic() - began
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    tokens = generate(llm, PROMPTS, sampling, profile)
    return {
        "tokens": tokens,
        "distinct": len({token for row in tokens for token in row}),
        "weights": weights,
        "seconds_to_start": round(started, 1),
        "annotations": annotations(traces),
        "capture_traces": len(list((traces / "capture_traces").glob("*.gz"))),
    }


give(run(bool(json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}").get("profile"))))
