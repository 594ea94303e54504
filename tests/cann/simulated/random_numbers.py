"""Random numbers of the npu's generators, drawn on the CPU."""

from __future__ import annotations

import torch


def host_generator(generator: torch.Generator | None) -> torch.Generator:
    """A CPU generator for the next draw of an npu ``generator``, the default for None.

    Each draw is seeded by the npu generator's seed and offset and moves the offset on,
    so ``manual_seed`` restarts it and each replay of a graph draws anew.
    """
    if generator is not None and generator.device.type == "cpu":
        return generator
    if generator is None:
        generator = torch.npu.default_generators[torch.npu.current_device()]
    seed, offset = generator.initial_seed(), generator.get_offset()
    generator.set_offset(offset + 4)
    return torch.Generator().manual_seed((seed * 1_000_003 + offset) % (1 << 63))
