"""A second opinion: real git applies the same patches to the same bytes.

GitPython is imported when first needed (60 ms), and neither it nor git has to be
there: ``GitMissing`` says so, and a caller may go on with the built-in plan alone.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.diff_model import Patch
from patchkit.errors import EnvironmentProblem, OwnBug
from patchkit.file_state import EXECUTABLE, REGULAR, FileState
from patchkit.plan_types import Plan
from patchkit.scratch import scratch_folder

# What a user's or a system's configuration would otherwise decide.
_CONFIG = {
    "apply.ignoreWhitespace": "no",
    "apply.whitespace": "nowarn",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.fileMode": "true",
    "core.hooksPath": os.devnull,
    "core.precomposeUnicode": "false",
}
# Attributes of the patched project must not change bytes on their way either.
_ATTRIBUTES = "* -text -crlf -eol -ident -filter -working-tree-encoding\n"
_RELOCATED = re.compile(r"^Hunk #\d+ succeeded at .*(offset|fuzz).*", re.MULTILINE)
_ENVIRON_LOCK = threading.Lock()


class GitMissing(EnvironmentProblem):
    """No git, or no GitPython, on this machine."""


@dataclass(frozen=True)
class GitResult:
    """Git agreed. ``seconds`` is the wall time of it, without importing GitPython."""

    seconds: float


def apply_with_git(
    patches: Sequence[Patch], plan: Plan, *, reverse: bool = False
) -> GitResult:
    """Let git apply ``patches`` to the plan's files, and compare every byte.

    Patches named in ``plan.skipped`` are left out. With ``reverse`` the plan is one
    to revert: git must get from its after to its before. Only a plan in state
    "apply" has anything to compare.

    Raises OwnBug where git refuses, moves a hunk, or ends with other bytes, another
    executable bit or another set of files; GitMissing without git.
    """
    if plan.state != "apply":
        return GitResult(0.0)
    wanted = [patch for patch in patches if patch.name not in plan.skipped]
    start = {file.path: file.before for file in plan.files}
    end = {file.path: file.after for file in plan.files}
    if reverse:
        start, end = end, start
    git = _git_module()
    began = time.perf_counter()
    with scratch_folder("git") as scratch:
        _run_git(git, scratch, wanted, start)
        _compare(scratch / "tree", end)
    return GitResult(time.perf_counter() - began)


def _git_module() -> Any:
    if shutil.which("git") is None:
        raise GitMissing(
            "git is not installed", hint="install git for a second check of the bytes"
        )
    # GitPython looks for git when imported, and raises unless told to be quiet.
    told = os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    try:
        import git
    except ImportError as error:
        raise GitMissing(
            f"GitPython cannot be imported: {error}", hint="make venv"
        ) from error
    finally:
        if told == "quiet":
            os.environ.pop("GIT_PYTHON_REFRESH", None)
    return git


def _run_git(
    git: Any,
    scratch: Path,
    patches: Sequence[Patch],
    start: Mapping[str, FileState | None],
) -> None:
    tree = scratch / "tree"
    for path, state in start.items():
        if state is not None:
            _write(tree / path, state)
    tree.mkdir(exist_ok=True)
    names = []
    for number, patch in enumerate(patches):
        names.append(scratch / f"{number:04}.patch")
        names[-1].write_bytes(patch.data)
    env = {
        "HOME": str(scratch),
        "XDG_CONFIG_HOME": str(scratch),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CEILING_DIRECTORIES": str(scratch),
        "GIT_ATTR_NOSYSTEM": "1",
        "LC_ALL": "C",
    }
    runner = git.Git(tree)
    options = [
        word for key, value in _CONFIG.items() for word in ("-c", f"{key}={value}")
    ]

    def call(*words: str) -> str:
        try:
            status, _, stderr = runner.execute(
                ["git", *options, *words],
                env=env,
                with_extended_output=True,
                with_exceptions=False,
            )
        except git.GitCommandNotFound as error:
            raise GitMissing("git cannot be run", hint="install git") from error
        if status:
            raise OwnBug(f"git refuses what was planned: {_first_error(stderr)}")
        return str(stderr)

    with _without_git_variables():
        # A repository of our own: inside another one git apply skips every file
        # and exits 0. No template: a user's may bring hooks and attributes.
        call("init", "-q", "--template=", ".")
        info = tree / ".git" / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_ATTRIBUTES, encoding="ascii")
        # One call: git writes the files of each patch before it reads the next.
        said = call("apply", "-v", *map(str, names))
    moved = _RELOCATED.search(said)
    if moved:
        raise OwnBug(f"git does not apply at the declared lines: {moved.group()}")


@contextmanager
def _without_git_variables() -> Iterator[None]:
    """Hide GIT_* (GIT_DIR in a hook, GIT_CONFIG_COUNT, …): GitPython passes all on."""
    with _ENVIRON_LOCK:
        hidden = {key: os.environ[key] for key in os.environ if key.startswith("GIT_")}
        for key in hidden:
            del os.environ[key]
        try:
            yield
        finally:
            os.environ.update(hidden)


def _first_error(stderr: str) -> str:
    lines = [line for line in str(stderr).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "fatal:"))]
    return (errors or lines or ["no message"])[0]


def _write(path: Path, state: FileState) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(state.data)
    path.chmod(state.mode & 0o777)


def _compare(tree: Path, end: Mapping[str, FileState | None]) -> None:
    found: dict[str, FileState] = {}
    for folder, folders, files in os.walk(tree):
        if Path(folder) == tree:
            folders.remove(".git")
        for name in files:
            file = Path(folder, name)
            mode = EXECUTABLE if file.stat().st_mode & 0o100 else REGULAR
            state = FileState(file.read_bytes(), mode)
            found[file.relative_to(tree).as_posix()] = state
    for path in sorted(found.keys() | end.keys()):
        if found.get(path) != end.get(path):
            raise OwnBug(f"{path}: {_differ(found.get(path), end.get(path))}")


def _differ(found: FileState | None, planned: FileState | None) -> str:
    if found is None:
        return "git makes no such file, the plan does"
    if planned is None:
        return "git leaves a file here, the plan does not"
    if found.data == planned.data:
        return f"git gives mode {found.mode:o}, the plan {planned.mode:o}"
    return "git and the plan end with different bytes"
