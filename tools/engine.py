#!/usr/bin/env python3
"""Make sure that a container engine answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from patchkit.command_line import run as run_main
from patchkit.engine import ensure_engine
from patchkit.errors import EXIT_OK


def main(argv: Sequence[str] | None = None) -> int:
    """Nothing where one answers; else install and start Debian's docker.io."""
    argparse.ArgumentParser(
        prog="tools/engine.py",
        description=__doc__,
        epilog="Nothing is done where one answers. Else docker.io is installed with "
        "apt-get and started, on Debian or Ubuntu as root. exit: 0 one answers; 2 none",
    ).parse_args(argv)
    state = ensure_engine()
    done = [
        word
        for word, was in (("installed", state.installed), ("started", state.started))
        if was
    ]
    how = " and ".join(done) or "was running"
    print(f"container engine {state.version} answers ({how})")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(run_main(main))
