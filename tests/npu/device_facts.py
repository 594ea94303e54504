"""Print what the first NPU is and what drives it, as JSON. Exit 2 without one."""

from __future__ import annotations

import json
import sys


def main() -> int:
    """In the environment of the tests, with CANN on the library path."""
    try:
        import torch
        import torch_npu
        from torch_npu.npu.utils import get_cann_version

        count = torch.npu.device_count()
    except (ImportError, RuntimeError) as error:
        # torch names the library that is missing in the cause alone.
        print(f"torch_npu finds no NPU: {error.__cause__ or error}", file=sys.stderr)
        return 2
    if not count:
        print("torch_npu finds no NPU: `npu-smi info` may say why", file=sys.stderr)
        return 2
    facts = {
        "device": torch.npu.get_device_name(0),
        "devices": count,
        "cann": get_cann_version("CANN"),
        "driver": get_cann_version("DRIVER"),
        "torch": torch.__version__,
        "torch_npu": torch_npu.__version__,
    }
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
