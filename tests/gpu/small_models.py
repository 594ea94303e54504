"""Small random models on disk, whose weights spread enough for tokens to differ.

Runs on the machine with the GPU; needs torch and safetensors.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCABULARY = 2048
_HIDDEN, _HEADS, _KV_HEADS, _HEAD, _INNER = 512, 8, 4, 64, 1024


def make_qwen3(folder: Path, layers: int = 4) -> Path:
    """A Qwen3 of random weights: the one model for which every release takes V2."""
    shape = {
        "model.embed_tokens.weight": (VOCABULARY, _HIDDEN),
        "model.norm.weight": (_HIDDEN,),
        "lm_head.weight": (VOCABULARY, _HIDDEN),
    }
    for number in range(layers):
        shape |= _layer(f"model.layers.{number}", norms=True)
    config = {
        **_config("Qwen3ForCausalLM", "qwen3", layers),
        "head_dim": _HEAD,
        "attention_bias": False,
        "max_window_layers": layers,
    }
    return _write(folder, config, shape)


def make_eagle(folder: Path) -> Path:
    """A draft of one layer, as EAGLE has it: a Llama layer over two hidden states."""
    shape = {
        "fc.weight": (_HIDDEN, 2 * _HIDDEN),
        "embed_tokens.weight": (VOCABULARY, _HIDDEN),
    } | _layer("layers.0", norms=False)
    # What comes in is the output of fc, which is not normalized again.
    del shape["layers.0.input_layernorm.weight"]
    config = _config("LlamaForCausalLM", "llama", 1) | {"head_dim": _HEAD}
    return _write(folder, config, shape)


def _layer(name: str, *, norms: bool) -> dict[str, tuple[int, ...]]:
    shape: dict[str, tuple[int, ...]] = {
        f"{name}.self_attn.q_proj.weight": (_HEADS * _HEAD, _HIDDEN),
        f"{name}.self_attn.k_proj.weight": (_KV_HEADS * _HEAD, _HIDDEN),
        f"{name}.self_attn.v_proj.weight": (_KV_HEADS * _HEAD, _HIDDEN),
        f"{name}.self_attn.o_proj.weight": (_HIDDEN, _HEADS * _HEAD),
        f"{name}.mlp.gate_proj.weight": (_INNER, _HIDDEN),
        f"{name}.mlp.up_proj.weight": (_INNER, _HIDDEN),
        f"{name}.mlp.down_proj.weight": (_HIDDEN, _INNER),
        f"{name}.input_layernorm.weight": (_HIDDEN,),
        f"{name}.post_attention_layernorm.weight": (_HIDDEN,),
    }
    if norms:
        shape[f"{name}.self_attn.q_norm.weight"] = (_HEAD,)
        shape[f"{name}.self_attn.k_norm.weight"] = (_HEAD,)
    return shape


def _config(architecture: str, kind: str, layers: int) -> dict[str, object]:
    return {
        "architectures": [architecture],
        "model_type": kind,
        "hidden_size": _HIDDEN,
        "num_hidden_layers": layers,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "intermediate_size": _INNER,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _write(
    folder: Path, config: dict[str, object], shape: dict[str, tuple[int, ...]]
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, size in shape.items():
        if len(size) == 1:
            tensor = torch.ones(size)
        else:
            tensor = torch.randn(size, generator=generator) / size[-1] ** 0.5
        tensors[name] = tensor.to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder
