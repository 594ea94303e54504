"""Engines that are told which devices their workers have, in a process of its own.

``python assigned_devices.py FOLDER chosen|data_parallel`` with SIMULATED_CANN_DEVICES=2
set. Prints, as JSON, the devices of the workers and the greedy tokens of each engine.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from small_engine import engine, generate, parameters

PROMPTS = [[3, 1, 4], [1, 5] * 50]
COUNTS = [9, 4]


class Devices:
    """What an engine adds to its workers."""

    def devices(self) -> list[int]:
        """The worker's device, and that of its weights, as the machine numbers them.

        Before 0.24 vLLM narrows what the process of an engine sees.
        """
        own: Any = self
        weights = {weight.device for weight in own.get_model().parameters()}
        seen = os.environ.get("ASCEND_RT_VISIBLE_DEVICES") or "0,1"
        numbers = [int(number) for number in seen.split(",")]
        return [numbers[each.index] for each in (own.device, *weights)]


EXTENSION = "assigned_devices.Devices"


async def chosen(folder: Path) -> dict[str, Any]:
    """By device_ids: the second device."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    with engine(
        folder, "FULL_DECODE_ONLY", device_ids=[1], worker_extension_cls=EXTENSION
    ) as llm:
        devices = llm.collective_rpc("devices")
        return {"devices": devices, "tokens": [generate(llm, PROMPTS, COUNTS)]}


async def data_parallel(folder: Path) -> dict[str, Any]:
    """Two engines, a device for each."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        data_parallel_size=2,
        worker_extension_cls=EXTENSION,
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        num_gpu_blocks_override=64,
        gpu_memory_utilization=0.1,
    )
    llm = AsyncLLM.from_engine_args(arguments)

    async def tokens(rank: int, number: int) -> list[int]:
        prompt = {"prompt_token_ids": PROMPTS[number]}
        outputs = llm.generate(
            prompt,
            parameters(COUNTS[number]),
            f"{rank}-{number}",
            data_parallel_rank=rank,
        )
        # Only the last one, since the sampling parameters ask for no more.
        (output,) = [each async for each in outputs]
        return list(output.outputs[0].token_ids)

    try:
        found = await asyncio.gather(*(tokens(r, n) for r in (0, 1) for n in (0, 1)))
        # Of each engine; collective_rpc gives those of one.
        client: Any = llm.engine_core
        asked = ("collective_rpc", "devices", None, (), None)
        devices = [
            await client._call_utility_async(*asked, engine=each)
            for each in client.core_engines
        ]
        return {"devices": devices, "tokens": [found[:2], found[2:]]}
    finally:
        llm.shutdown()


def main() -> None:
    """Run one, and print."""
    folder, which = sys.argv[1:]
    run = {"chosen": chosen, "data_parallel": data_parallel}[which]
    print("FOUND " + json.dumps(asyncio.run(run(Path(folder)))), flush=True)


if __name__ == "__main__":
    main()
