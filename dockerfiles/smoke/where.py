"""Runs in an image: where its vLLM lies, which version it is, and which plugins it has.

Imports nothing of vLLM: an image that is no vLLM image yet gives None for it.
"""

import importlib.metadata
import importlib.util
import subprocess
from pathlib import Path

from result import give

PREFIX = "vllm."


def where() -> dict:
    spec = importlib.util.find_spec("vllm")
    root = None
    if spec is not None and spec.origin:
        root = str(Path(spec.origin).resolve().parents[1])
    try:
        version = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        version = None
    return {
        "root": root,
        "version": version,
        "has_torch_npu": importlib.util.find_spec("torch_npu") is not None,
        "plugins": plugins(),
        "work_tree": work_tree(Path(root)) if root else None,
    }


def plugins() -> list[dict]:
    """Entry points by which packages extend vLLM: name, group and package."""
    found = {}
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"]
        for entry in package.entry_points:
            if entry.group.startswith(PREFIX):
                key = (entry.name, entry.group, name)
                found[key] = dict(zip(("name", "group", "package"), key, strict=True))
    return [found[key] for key in sorted(found)]


def work_tree(root: Path) -> dict | None:
    """Of a git clone: the commit and its tags, both empty where no git is to ask."""
    if not (root / ".git").exists():
        return None

    def git(*words: str) -> str:
        command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    tags = git("tag", "--points-at", "HEAD").split()
    return {"commit": git("rev-parse", "HEAD"), "tags": tags}


give(where())
