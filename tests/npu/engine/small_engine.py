"""Small random models, and vLLM's engine on them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 256
LAYERS = 4
MODES = ("eager", "PIECEWISE", "FULL", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY")
SIZES = (1, 2, 4)


def write_model(folder: Path, kind: str, **settings: Any) -> Path:
    """A checkpoint of random weights, from transformers' own model of that kind.

    kind: "llama", "qwen3" or "cwm", to vLLM a Llama whose layers may have windows.
    Weights are wide enough that greedy tokens vary.
    """
    import transformers

    config_class, model_class = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "cwm": (transformers.CwmConfig, transformers.CwmForCausalLM),
    }[kind]
    config = config_class(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        head_dim=16,
        max_position_embeddings=1024,
        initializer_range=0.2,
        **{"num_key_value_heads": 2, "tie_word_embeddings": False, **settings},
    )
    torch.manual_seed(0)
    model_class(config).save_pretrained(folder)
    return folder


@contextmanager
def engine(
    folder: Path, mode: str, sizes: Sequence[int] = SIZES, **settings: Any
) -> Iterator[Any]:
    """vLLM's LLM on the model in that mode; everything is given back at the end."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    # What an engine before left: vLLM minds memory that comes back as it measures.
    gc.collect()
    if torch.accelerator.is_available():
        torch.npu.empty_cache()
    graphs: dict[str, Any] = {"enforce_eager": True}
    if mode != "eager":
        config = {"cudagraph_mode": mode, "cudagraph_capture_sizes": [*sizes]}
        graphs = {"compilation_config": config}
    llm = LLM(
        model=str(folder),
        skip_tokenizer_init=True,
        **{
            "dtype": "float32",
            "max_model_len": 512,
            "num_gpu_blocks_override": 64,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 64,
            "gpu_memory_utilization": 0.1,
            "enable_prefix_caching": False,
            **graphs,
            **settings,
        },
    )
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
        has_worker_here = llm.llm_engine.vllm_config.parallel_config.world_size == 1
        del llm
        if has_worker_here:
            cleanup_dist_env_and_memory()
        torch._dynamo.reset()
        gc.collect()


def parameters(count: int) -> Any:
    """Sampling of ``count`` greedy tokens."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0,
        max_tokens=count,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def outputs_of(
    llm: Any, prompts: Sequence[Sequence[int]], counts: Sequence[int]
) -> list[Any]:
    """What vLLM returns for each prompt and its number of greedy tokens."""
    return llm.generate(
        [{"prompt_token_ids": list(prompt)} for prompt in prompts],
        [parameters(count) for count in counts],
        use_tqdm=False,
    )


def generate(
    llm: Any, prompts: Sequence[Sequence[int]], counts: Sequence[int]
) -> list[list[int]]:
    """Greedy tokens, ``counts`` for each prompt."""
    outputs = outputs_of(llm, prompts, counts)
    return [list(output.outputs[0].token_ids) for output in outputs]


def runner(llm: Any) -> Any:
    """The model runner of the engine's one worker."""
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner


def scheduler(llm: Any) -> Any:
    """The scheduler of the engine, which is in this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def count_preemptions(llm: Any) -> list[str]:
    """A list that each preemption from now on adds its request to."""
    preempted: list[str] = []
    preempt = scheduler(llm)._preempt_request

    def noted(request: Any, *args: Any, **kwargs: Any) -> None:
        preempted.append(request.request_id)
        preempt(request, *args, **kwargs)

    scheduler(llm)._preempt_request = noted
    return preempted


def graphs_of(llm: Any) -> dict[Any, Any]:
    """The whole model's graphs, by batch descriptor."""
    return runner(llm).model.concrete_cudagraph_entries
