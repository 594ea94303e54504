"""What the tests of the profiler profile: ``python profiler_program.py CPU,NPU``.

It leaves traces in its folder, and raw data of two profilers below ``work``.
"""

from __future__ import annotations

import os
import sys
import time

SLEEP_SECONDS = 0.1
SHAPE = (2, 3)
LARGE = (1024, 1024)


def captured_here(x: object) -> object:
    import torch

    return torch.nn.functional.silu(x)


def _main(names: list[str]) -> None:
    from simulated.start import start

    start()
    import torch
    from torch.profiler import record_function
    from torch_npu.profiler import ProfilerActivity, profile

    torch.set_grad_enabled(False)
    activities = [getattr(ProfilerActivity, name) for name in names]
    x = torch.ones(SHAPE, device="npu")
    graph = torch.npu.NPUGraph()

    first = profile(activities=activities, record_shapes=True, with_stack=True)
    x * 2
    first.start()
    with record_function("eager part"):
        x + 1
    with record_function("capture_2_FULL"), torch.npu.graph(graph):
        y = captured_here(x)
    with record_function("replayed"):
        graph.replay()
    first.stop()
    x / 2
    assert torch.allclose(y.cpu(), torch.nn.functional.silu(torch.ones(SHAPE)))
    first.export_chrome_trace("first.json")

    with profile(activities=activities) as second, record_function("second part"):
        x - 1
        time.sleep(SLEEP_SECONDS)
    second.export_chrome_trace("second.json")

    os.environ["ASCEND_WORK_PATH"] = "work"
    for part in ("third part", "fourth part"):
        with (
            profile(activities=activities, profile_memory=True),
            record_function(part),
        ):
            large = torch.empty(LARGE, device="npu")
            del large
    # Stopped is stopped: torch's own profiler may follow.
    assert not torch.autograd._profiler_enabled()


if __name__ == "__main__":
    _main(sys.argv[1].split(","))
