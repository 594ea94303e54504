"""What the engines that run in an image profile, and what they find of it."""

import gzip
import re
from pathlib import Path


def profiler_options(traces: Path) -> dict:
    """The settings of a profiler that traces captures and annotates steps."""
    return {
        "profiler": "torch",
        "torch_profiler_dir": str(traces),
        "torch_profiler_with_stack": False,
        "capture_torch_profiler": True,
        "detailed_trace_annotation": True,
    }


def generate(llm, prompts: list[list[int]], sampling, profile: bool) -> list[list[int]]:
    """The tokens for each prompt, its steps profiled if wanted."""
    if profile:
        llm.start_profile()
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False
    )
    if profile:
        llm.stop_profile()
    return [list(output.outputs[0].token_ids) for output in outputs]


def annotations(traces: Path) -> list[str]:
    """The names of the steps in all traces below the folder."""
    found: set[str] = set()
    for path in [*traces.rglob("*.json.gz"), *traces.rglob("*.json")]:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        found |= set(re.findall(r'"name": ?"(execute_[^"]+)"', text))
    return sorted(found)
