"""The kit as a repository that others install from, and pre-commit to do it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bare_python import bare_python, environment, git, kit_repository
from github_runner import Job, run_action

from patchkit.releases import PROJECT

SAMPLE = PROJECT / "tests" / "hooks" / "sample"


@dataclass(frozen=True)
class Hooks:
    """pre-commit with its own cache, and the repository that it installs from."""

    kit: Path
    commit: str
    home: Path

    def run(
        self, folder: Path, *words: str, status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", *words],
            cwd=folder,
            env=environment(PRE_COMMIT_HOME=str(self.home), PRE_COMMIT_COLOR="never"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def installed(self) -> Path:
        """The command in the environment that pre-commit made."""
        [command] = self.home.glob("repo*/py_env-*/bin/verify-hunks")
        return command


@pytest.fixture(scope="session")
def hooks(need: Callable[[bool, str], None]) -> Hooks:
    """pre-commit, with the kit's hook installed."""
    need(importlib.util.find_spec("pre_commit") is not None, "pre-commit; make venv")
    need((PROJECT / ".git").exists(), "no git checkout to install the kit from")
    kit, commit = kit_repository()
    return Hooks(kit, commit, kit.parent / "pre-commit")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A user's repository: a source and no patches yet."""
    folder = tmp_path / "user"
    shutil.copytree(SAMPLE / "src", folder / "src")
    git(folder, "init", "-q", "--template=", ".")
    git(folder, "add", "-A")
    return folder


@pytest.fixture(scope="session")
def sample() -> Path:
    """A source, a good patch of it and a bad one."""
    return SAMPLE


@pytest.fixture(scope="session")
def load_yaml(need: Callable[[bool, str], None]) -> Callable[[str], Any]:
    """A reader of YAML."""
    need(importlib.util.find_spec("yaml") is not None, "pyyaml; make venv")
    import yaml

    return yaml.safe_load


@pytest.fixture(scope="session")
def action(load_yaml: Callable[[str], Any]) -> dict[str, Any]:
    """What action.yml says."""
    return load_yaml((PROJECT / "action.yml").read_text())


@pytest.fixture(scope="session")
def runner_temp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of one job of several steps."""
    return tmp_path_factory.mktemp("runner")


@pytest.fixture
def act(action: dict[str, Any], runner_temp: Path) -> Callable[..., Job]:
    """``act(workspace, inputs)``: run the action there."""
    python = bare_python()

    def run(workspace: Path, temp: Path = runner_temp, env=(), **inputs: str) -> Job:
        (temp / "verify-hunks.sarif").unlink(missing_ok=True)
        return run_action(action, workspace, temp, python, inputs, **dict(env))

    return run
