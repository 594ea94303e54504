"""What a user's machine has: a Python with pip and nothing else, and a clean git."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from real_git import clean_env

from patchkit.cache import LEFTOVER_SECONDS, cache_folder
from patchkit.clean_git import KIT_IDENTITY
from patchkit.releases import PROJECT

CACHE = "hooks-tests"
INSTALLED = ("pyproject.toml", ".pre-commit-hooks.yaml", "tools")


def environment(**more: str) -> dict[str, str]:
    """The user's own environment, in which no configuration of git counts."""
    return clean_env(Path.home()) | KIT_IDENTITY | more


def git(folder: Path, *words: str) -> str:
    """Run git in ``folder``; its output."""
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def bare_python() -> Path:
    """The ``bin`` of an environment without packages, kept in the cache."""
    name = f"python-{sys.version_info[0]}.{sys.version_info[1]}"
    target = cache_folder(CACHE) / name
    if not (target / "bin" / "pip").exists():
        # In place, since its scripts name it; a killed run's half is begun anew.
        subprocess.run([sys.executable, "-m", "venv", "--clear", target], check=True)
    return target / "bin"


def kit_repository() -> tuple[Path, str]:
    """A repository with what a user installs from the kit, and its one commit.

    The tracked files as they are in the work tree. Of the same files it is the same
    commit at the same place, so that pre-commit finds the environment it made of it.
    """
    cache = cache_folder(CACHE)
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=cache))
    try:
        kit = fresh / "kit"
        for name in git(PROJECT, "ls-files", "-z", *INSTALLED).split("\0")[:-1]:
            if (PROJECT / name).exists():
                (kit / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(PROJECT / name, kit / name)
        git(kit, "init", "-q", "--template=", ".")
        git(kit, "add", "-A")
        git(kit, "commit", "-q", "-m", "the kit")
        commit = git(kit, "rev-parse", "HEAD").strip()
        target = cache / f"kit-{commit}"
        if not target.exists():
            fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    os.utime(target)
    _remove_old(cache, target)
    return target / "kit", commit


def _remove_old(cache: Path, current: Path) -> None:
    """Each state of the kit leaves an environment of some 100 MB behind."""
    for folder in [*cache.glob("kit-*"), *cache.glob("new-*")]:
        age = time.time() - folder.stat().st_mtime
        if folder != current and age > LEFTOVER_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
