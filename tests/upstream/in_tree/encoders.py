"""Graph managers of encoders, with a model that does marked work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from stand_ins import DEVICE, capture_work, warm_up_work
from upstream_api import EncoderModel
from vllm.v1.worker.encoder_cudagraph import EncoderCudaGraphManager

ONE_PATH: dict[str, int | None] = {"default": None}
TWO_PATHS: dict[str, int | None] = {"global": 16, "local": 8}


def encoder_manager(
    config: Any,
    paths: dict[str, int | None] = ONE_PATH,
    axes: tuple[tuple[tuple[str, ...], ...], ...] = (),
) -> EncoderCudaGraphManager:
    """The release's manager, with token budgets 16 and 32."""
    compilation = config.compilation_config
    compilation.encoder_cudagraph_token_budgets = [16, 32]
    compilation.encoder_cudagraph_max_vision_items_per_batch = 4
    compilation.encoder_cudagraph_max_frames_per_batch = None
    multimodal = MagicMock(**{"get_limit_per_prompt.return_value": 0})
    config.model_config = SimpleNamespace(multimodal_config=multimodal)

    def work(is_warm_up: bool) -> None:
        (warm_up_work if is_warm_up else capture_work)()

    model = EncoderModel(work, paths, axes)
    return EncoderCudaGraphManager(config, DEVICE, torch.float32, model)
