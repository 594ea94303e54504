"""What the platform says of the device, makes of a configuration, and refuses."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_npu
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.config import (
    CacheConfig,
    CompilationConfig,
    KVTransferConfig,
    LoRAConfig,
    ModelConfig,
    OffloadConfig,
    ParallelConfig,
    PrefetchOffloadConfig,
    SpeculativeConfig,
    UVAOffloadConfig,
    VllmConfig,
)
from vllm.platforms import current_platform
from vllm.platforms.npu import NPUPlatform
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.attention.selector import AttentionSelectorConfig


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the platform may write to: what it was comes back."""
    for name in ("VLLM_USE_V2_MODEL_RUNNER", "VLLM_WORKER_MULTIPROC_METHOD"):
        # Also where it is not set, so that it is taken away again.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_the_device_is_torch_npu_s() -> None:
    properties = torch.npu.get_device_properties(0)
    assert current_platform.get_device_name() == properties.name == "Ascend910B4"
    assert current_platform.get_device_total_memory() == properties.total_memory
    assert current_platform.num_compute_units() == properties.cube_core_num
    assert current_platform.get_device_capability() is None
    assert torch.empty(1, device=current_platform.device_type).is_npu
    assert torch.device("npu").type == current_platform.device_type
    # What torch.distributed calls it, and Ascend's driver.
    assert current_platform.dist_backend in torch.distributed.Backend.backend_list
    assert current_platform.device_control_env_var == "ASCEND_RT_VISIBLE_DEVICES"
    current_platform.set_device(torch.device("npu:0"))
    assert torch.npu.current_device() == 0
    # There is nothing to load.
    current_platform.import_kernels()


def test_seeds_are_those_of_the_device() -> None:
    def numbers(seed: int) -> list[float]:
        current_platform.manual_seed_all(seed)
        return torch.rand(8, device="npu").tolist()

    assert numbers(3) == numbers(3) != numbers(4)


def test_memory_usage_is_the_peak_from_now_on() -> None:
    size = 8 << 20
    before = current_platform.get_current_memory_usage()
    tensor = torch.empty(size, dtype=torch.uint8, device="npu")
    used = current_platform.get_current_memory_usage() - before
    # torch_npu takes a little more, by what its pool has left.
    assert size <= used <= size + (1 << 16)
    del tensor
    assert current_platform.get_current_memory_usage() == before


def test_inference_mode_tracks_no_gradients() -> None:
    weight = torch.ones(1, requires_grad=True)
    with torch.enable_grad(), current_platform.inference_mode():
        assert not (weight * 2).requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types_that_are_served(dtype: torch.dtype) -> None:
    current_platform.check_if_supports_dtype(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float8_e4m3fn, torch.int8])
def test_types_that_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"{dtype} is not supported by npu"):
        current_platform.check_if_supports_dtype(dtype)


def test_defaults_of_a_configuration() -> None:
    config = VllmConfig()
    assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert config.parallel_config.worker_cls == "vllm.v1.worker.npu_worker.NPUWorker"
    assert config.compilation_config.backend == "eager"
    assert config.compilation_config.compile_sizes == []
    passes = vars(config.compilation_config.pass_config)
    on = {name for name, value in passes.items() if value is True}
    assert not {name for name in on if name.startswith(("fuse", "enable"))}


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    config = VllmConfig(
        parallel_config=ParallelConfig(worker_cls="mine.Worker"),
        compilation_config=CompilationConfig(backend="mine.backend", compile_sizes=[4]),
    )
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "fork"
    assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert config.parallel_config.worker_cls == "mine.Worker"
    assert config.compilation_config.backend == "mine.backend"
    assert config.compilation_config.compile_sizes == [4]


def test_inductor_is_replaced_and_the_log_says_so(
    log: pytest.LogCaptureFixture,
) -> None:
    config = VllmConfig(compilation_config=CompilationConfig(backend="inductor"))
    assert config.compilation_config.backend == "eager"
    said = [record for record in log.records if "Inductor" in record.getMessage()]
    assert [record.levelname for record in said] == ["WARNING"]


def test_passes_for_gpus_are_off_and_others_as_they_were() -> None:
    from vllm.config.compilation import PassConfig

    passes = PassConfig(fuse_norm_quant=True, fuse_act_quant=True, eliminate_noops=True)
    config = VllmConfig(compilation_config=CompilationConfig(pass_config=passes))
    passes = config.compilation_config.pass_config
    assert not passes.fuse_norm_quant
    assert not passes.fuse_act_quant
    assert passes.eliminate_noops


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import transformers

    folder = tmp_path_factory.mktemp("model")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        num_attention_heads=4,
        num_hidden_layers=9,
        num_key_value_heads=2,
    )
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    return folder


def model_config(folder: Path, **options: Any) -> ModelConfig:
    return ModelConfig(
        model=str(folder), skip_tokenizer_init=True, dtype="float16", **options
    )


def _with(
    model: ModelConfig, name: str, value: Any, owner: Any = None
) -> dict[str, Any]:
    """The model, another now; nothing but it is different."""
    setattr(owner or model, name, value)
    return {}


def _ngrams(model: ModelConfig) -> SpeculativeConfig:
    return SpeculativeConfig(
        method="ngram",
        num_speculative_tokens=2,
        prompt_lookup_max=2,
        target_model_config=model,
        target_parallel_config=ParallelConfig(),
    )


REFUSED: dict[str, Callable[[ModelConfig], dict[str, Any]]] = {
    "Speculative decoding": lambda model: {"speculative_config": _ngrams(model)},
    "LoRA": lambda _: {"lora_config": LoRAConfig()},
    "Decode context parallelism": lambda _: {
        "parallel_config": ParallelConfig(
            tensor_parallel_size=4, decode_context_parallel_size=2
        )
    },
    "Prefill context parallelism": lambda _: {
        "parallel_config": ParallelConfig(prefill_context_parallel_size=2)
    },
    "Dual batch overlap": lambda _: {"parallel_config": ParallelConfig(ubatch_size=2)},
    "KV cache of dtype fp8": lambda _: {"cache_config": CacheConfig(cache_dtype="fp8")},
    "KV cache of dtype bfloat16": lambda _: {
        "cache_config": CacheConfig(cache_dtype="bfloat16")
    },
    "KV transfer and offloading": lambda _: {
        "kv_transfer_config": KVTransferConfig(
            kv_connector="ExampleConnector", kv_role="kv_both"
        )
    },
    "KV transfer and offloading ": lambda _: {
        "cache_config": CacheConfig(kv_offloading_size=1.0)
    },
    "Fast prefill of shared KV caches": lambda _: {
        "cache_config": CacheConfig(kv_sharing_fast_prefill=True)
    },
    "Weight offloading": lambda _: {
        "offload_config": OffloadConfig(uva=UVAOffloadConfig(cpu_offload_gb=1))
    },
    "Weight offloading ": lambda _: {
        "offload_config": OffloadConfig(
            prefetch=PrefetchOffloadConfig(offload_group_size=2)
        )
    },
    "A model with linear attention": lambda model: _with(
        model, "_model_info", dataclasses.replace(model._model_info, is_hybrid=True)
    ),
    "Quantization": lambda model: _with(model, "quantization", "fp8"),
    "Mixture of experts": lambda model: _with(
        model, "num_experts", 4, model.model_arch_config
    ),
}


@pytest.mark.parametrize("feature", REFUSED)
def test_what_is_refused_before_a_worker_starts(model: Path, feature: str) -> None:
    config = model_config(model)
    # Two of a kind differ in a space.
    wanted = f"{feature.rstrip()} is not supported by npu"
    with pytest.raises(ValueError, match=wanted):
        VllmConfig(model_config=config, **REFUSED[feature](config))


@pytest.mark.parametrize("dtype", ["auto", "float16", "bfloat16"])
def test_types_of_the_cache_that_are_served(dtype: str) -> None:
    config = VllmConfig(cache_config=CacheConfig(cache_dtype=dtype))
    assert config.cache_config.cache_dtype == dtype


def test_the_other_model_runner_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    wanted = r"V2 model runner \(unset VLLM_USE_V2_MODEL_RUNNER\) is not supported"
    with pytest.raises(ValueError, match=wanted):
        VllmConfig()


def selected(**options: Any) -> str:
    settings = {
        "head_size": 128,
        "dtype": torch.float16,
        "kv_cache_dtype": "auto",
        "block_size": 128,
    }
    wanted = options.pop("backend", None)
    config = AttentionSelectorConfig(**{**settings, **options})
    return NPUPlatform.get_attn_backend_cls(wanted, config)


def test_the_attention_backend() -> None:
    wanted = "vllm.v1.attention.backends.npu_attn.NPUAttentionBackend"
    assert selected() == selected(backend=AttentionBackendEnum.CUSTOM) == wanted
    for options in ({"head_size": 16}, {"head_size": 512}, {"dtype": torch.float32}):
        assert selected(**options) == wanted


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"head_size": 72}, "head_size not supported"),
        ({"head_size": 528}, "head_size not supported"),
        ({"dtype": torch.float64}, "dtype not supported"),
        ({"block_size": 100}, "block_size not supported"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype not supported"),
        ({"use_mla": True}, "MLA not supported"),
        ({"has_sink": True}, "attention sinks not supported"),
        ({"attn_type": "encoder_only"}, "attention type encoder_only not supported"),
    ],
)
def test_a_model_that_the_backend_cannot_serve(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match="cannot serve this model") as raised:
        selected(**options)
    assert reason in str(raised.value)
    # And what was asked for.
    assert repr(next(iter(options.values()))).strip("'") in str(raised.value)


def test_another_backend_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"FLASH_ATTN.*leave the choice to the plat"):
        selected(backend=AttentionBackendEnum.FLASH_ATTN)


def test_sleep_mode_is_refused_by_vllm_already(model: Path) -> None:
    with pytest.raises(ValueError, match="Sleep mode is not supported"):
        model_config(model, enable_sleep_mode=True)


def sizes_of(model: Path, mode: str, count: int, **parallel: int) -> VllmConfig:
    return VllmConfig(
        model_config=model_config(model),
        parallel_config=ParallelConfig(**parallel),
        compilation_config=CompilationConfig(
            cudagraph_mode=mode, cudagraph_capture_sizes=list(range(1, count + 1))
        ),
    )


def versions(patch: pytest.MonkeyPatch, **installed: str) -> None:
    """Of CANN and DRIVER. An old one leaves 1800 streams of a device for graphs."""
    patch.setattr(torch_npu.npu.utils, "get_cann_version", installed.__getitem__)


@pytest.mark.parametrize(
    ("mode", "ranks", "kept"),
    [
        # Nine layers: ten pieces a size, one graph a size, or both.
        ("PIECEWISE", 1, 180),
        ("FULL_DECODE_ONLY", 1, 200),
        ("FULL_AND_PIECEWISE", 1, 163),
        ("FULL", 1, 163),
        # One group: 40 of the streams, and three for each graph.
        ("PIECEWISE", 2, 58),
    ],
)
def test_capture_sizes_on_an_old_driver(
    model: Path,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    mode: str,
    ranks: int,
    kept: int,
) -> None:
    versions(monkeypatch, CANN="8.2.RC1", DRIVER="24.1.0")
    config = sizes_of(model, mode, 200, tensor_parallel_size=ranks)
    sizes = config.compilation_config.cudagraph_capture_sizes
    assert len(sizes) == kept
    assert sizes[-1] == config.compilation_config.max_cudagraph_capture_size == 200
    said = [text for text in log.messages if "sizes are to be captured" in text]
    if kept == 200:
        assert not said
    else:
        (text,) = said
        captured = {"FULL": "FULL_AND_PIECEWISE"}.get(mode, mode)
        assert f"200 sizes are to be captured in mode {captured}, " in text
        assert f"enough for {kept} of them, with 9 layers" in text


def test_capture_sizes_on_a_new_driver(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions(monkeypatch, CANN="8.5.0", DRIVER="25.5.1")
    config = sizes_of(model, "PIECEWISE", 200)
    assert len(config.compilation_config.cudagraph_capture_sizes) == 200


def test_graphs_are_those_of_vllm_s_own_wrapper() -> None:
    assert current_platform.support_static_graph_mode()
    path = current_platform.get_static_graph_wrapper_cls()
    assert resolve_obj_by_qualname(path) is CUDAGraphWrapper
