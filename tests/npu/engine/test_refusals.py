"""What an NPU cannot serve is refused as the engine is configured, in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_engine import write_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama"), "llama")


def _configure(folder: Path, **settings: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    arguments = EngineArgs(
        model=str(folder),
        **{"skip_tokenizer_init": True, "max_model_len": 512, **settings},
    )
    return arguments.create_engine_config()


_ngram = {
    "method": "ngram",
    "num_speculative_tokens": 2,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speculative_config": _ngram}, "Speculative decoding"),
        ({"enable_lora": True}, "LoRA"),
        ({"kv_cache_dtype": "fp8"}, "KV cache of dtype fp8"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "KV cache of dtype fp8_e5m2"),
        (
            {"tensor_parallel_size": 4, "decode_context_parallel_size": 2},
            "Decode context parallelism",
        ),
        ({"prefill_context_parallel_size": 2}, "Prefill context parallelism"),
        ({"enable_dbo": True}, "Dual batch overlap"),
    ],
)
def test_features(llama: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f" {message} is not supported by npu[.]"):
        _configure(llama, **settings)


def test_sleep_mode(llama: Path) -> None:
    # By vLLM itself, which asks the platform.
    with pytest.raises(ValueError, match="Sleep mode is not supported on current pl"):
        _configure(llama, enable_sleep_mode=True)


def test_v2_runner(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    with pytest.raises(ValueError, match=r"V2 model runner \(unset VLLM_USE_V2_M"):
        _configure(llama)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    assert _configure(llama).parallel_config.worker_cls.endswith("NPUWorker")


def test_what_is_left_is_accepted(llama: Path) -> None:
    for settings in (
        {"kv_cache_dtype": "auto"},
        {"kv_cache_dtype": "bfloat16", "dtype": "bfloat16"},
        {"dtype": "float16"},
    ):
        assert _configure(llama, **settings).device_config.device_type == "npu"


def _select(selected: Any = None, **others: Any) -> str:
    from vllm.platforms import current_platform
    from vllm.v1.attention.selector import AttentionSelectorConfig

    values = {
        "head_size": 128,
        "dtype": torch.bfloat16,
        "kv_cache_dtype": "auto",
        "block_size": 128,
        **others,
    }
    return current_platform.get_attn_backend_cls(
        selected, AttentionSelectorConfig(**values)
    )


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"use_mla": True}, "MLA not supported"),
        ({"has_sink": True}, "attention sinks not supported"),
        ({"use_sparse": True}, "sparse not supported"),
        ({"head_size": 72}, "head_size not supported"),
        ({"head_size": 576}, "head_size not supported"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype not supported"),
        ({"dtype": torch.float64}, "dtype not supported"),
        ({"attn_type": "encoder_only"}, "attention type encoder_only not supported"),
        ({"use_mm_prefix": True}, "partial multimodal token full attention"),
    ],
)
def test_attention(others: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match="cannot serve this model") as caught:
        _select(**others)
    assert reason in str(caught.value)


def test_attention_backends() -> None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    backend = "vllm.v1.attention.backends.npu_attn.NPUAttentionBackend"
    assert _select() == _select(AttentionBackendEnum.CUSTOM) == backend
    others = [x for x in AttentionBackendEnum if x is not AttentionBackendEnum.CUSTOM]
    assert len(others) > 10
    for other in others:
        with pytest.raises(ValueError, match="leave the choice to the platform"):
            _select(other)


@pytest.mark.parametrize(
    ("others", "feature"),
    [
        ({"alibi_slopes": [1.0] * 8}, "ALiBi"),
        ({"logits_soft_cap": 30.0}, "a soft cap on logits"),
        ({"attn_type": "encoder"}, "attention type encoder"),
    ],
)
def test_layers(others: dict[str, Any], feature: str) -> None:
    from vllm.v1.attention.backends.npu_attn import NPUAttentionImpl

    NPUAttentionImpl(8, 16, 0.25)
    with pytest.raises(NotImplementedError, match=f"does not support {feature}"):
        NPUAttentionImpl(8, 16, 0.25, **others)


def test_sizes_that_are_left_out_are_told(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vllm.platforms.npu as platform
    from vllm.compilation.acl_graph import StreamBudget

    told: list[str] = []
    monkeypatch.setattr(
        platform.logger, "warning", lambda text, *values: told.append(text % values)
    )
    monkeypatch.setattr(StreamBudget, "is_limited", staticmethod(lambda: True))
    monkeypatch.setattr(StreamBudget, "streams", 18)
    graphs = {
        "cudagraph_mode": "PIECEWISE",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16],
    }
    config = _configure(llama, compilation_config=graphs)
    assert config.compilation_config.cudagraph_capture_sizes == [2, 8, 16]
    assert told == [
        "5 sizes are to be captured in mode PIECEWISE, and the streams of this NPU's "
        "driver are enough for 3 of them, with 4 layers and 0 communicating groups: "
        "kept [2, 8, 16]. FULL_DECODE_ONLY needs one stream a size."
    ]
    told.clear()
    graphs["cudagraph_mode"] = "FULL_DECODE_ONLY"
    config = _configure(llama, compilation_config=graphs)
    assert config.compilation_config.cudagraph_capture_sizes == [1, 2, 4, 8, 16]
    assert not told
