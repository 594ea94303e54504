"""Imports vLLM from a tree and serves with it, for each line of the input anew.

``python npu_prefix_program.py TREE FOLDER``. A line is a name and modules; what came of
it is written to FOLDER/NAME.json, and then a line is printed. torch is imported once:
each line has a process forked after that, before any of vLLM or of torch_npu.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers  # noqa: F401
from reference import Reference
from small_engine import engine, generate, write_model

PROMPTS = [[5, 17, 230, 8], [99], list(range(3, 140))]
COUNTS = (6, 8, 5)


def serve(model: Path, modules: list[str]) -> dict[str, Any]:
    """The platform, and transformers' tokens in eager mode or why there are none."""
    for module in modules:
        importlib.import_module(module)
    from vllm.platforms import current_platform

    found: dict[str, Any] = {"platform": type(current_platform).__name__}
    if current_platform.device_name != "npu":
        return found
    try:
        with engine(model, "eager") as llm:
            tokens = generate(llm, PROMPTS, COUNTS)
        Reference(model, torch.float32).check(PROMPTS, tokens)
        found["tokens"] = tokens
    except Exception as error:
        found["error"] = str(error)
    return found


def in_child(file: Path, work: Callable[[], Any]) -> None:
    """Do the work in a forked process, and write what it returns to the file."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        file.write_text(json.dumps(work()))
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def main(tree: str, folder: Path) -> None:
    """Make the model, then do one line after the other."""
    model = folder / "model"
    in_child(folder / "model.json", lambda: str(write_model(model, "llama")))
    sys.path.insert(0, tree)
    for line in sys.stdin:
        name, *modules = line.split()
        in_child(folder / f"{name}.json", lambda: serve(model, modules))  # noqa: B023
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
