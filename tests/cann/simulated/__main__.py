"""Runs a Python program with the real torch_npu on the simulated runtime.

usage: PYTHONPATH=tests/cann python -m simulated PROGRAM.py [ARGUMENT …]
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from simulated.build_runtime import BuildError
from simulated.start import start


def main() -> None:
    """Start the runtime, then run the program as __main__."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if len(sys.argv) > 1 else 2)
    try:
        start()
    except BuildError as error:
        sys.exit(f"simulated CANN: {error}")
    del sys.argv[0]
    # As Python does for a program: what lies beside it can be imported.
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
