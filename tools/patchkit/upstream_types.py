"""Upstream's mypy on the files of a series: which of its findings the patches bring."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import EnvironmentProblem
from patchkit.releases import Release
from patchkit.upstream import open_source
from patchkit.upstream_env import program_python

HOOKS = ".pre-commit-config.yaml"
CONFIG = "pyproject.toml"
_WANTED = re.compile(
    r"""additional_dependencies:\s*\[\s*(["']?mypy(\[[^\]]*\])?==[^\]]*)\]"""
)
_VERSION = re.compile(r'entry:.*\bmypy\.py\b.*"(3\.\d+)"')
_LINE = re.compile(r"(?P<path>[^:\n]+):(?P<line>\d+): error: (?P<text>.*)")


@dataclass(frozen=True)
class TypeCheck:
    """How upstream's pre-commit hook runs mypy: with what, and as which Python."""

    python: Path
    config: Path
    version: str


@dataclass(frozen=True)
class Mistyped:
    """One error of mypy's, at a line of a tree's file."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def open_type_check(release: Release, version: str) -> TypeCheck:
    """What the release's own hook says, in an environment made from that.

    As there, no torch is in it. Raises EnvironmentProblem when the release has no such
    hook, or the environment cannot be made.
    """
    source = open_source(release, version=version, paths=(HOOKS, CONFIG))
    wanted, python_version = read_hook(source.file(HOOKS).read_text())
    python = program_python(f"mypy-{release.name}", wanted)
    return TypeCheck(python, source.file(CONFIG), python_version)


def read_hook(text: str) -> tuple[list[str], str]:
    """The requirements of upstream's mypy hook, and the Python that it checks for."""
    wanted, version = _WANTED.search(text), _VERSION.search(text)
    if wanted is None or version is None:
        raise EnvironmentProblem(f"{HOOKS} has no mypy hook of the kind that is known")
    words = (word.strip().strip("\"'") for word in wanted[1].split(","))
    return [word for word in words if word], version[1]


def type_errors(check: TypeCheck, tree: Path, paths: Sequence[str]) -> list[Mistyped]:
    """mypy's errors on those of ``paths`` that are in ``tree``.

    Raises EnvironmentProblem when mypy does not come to a result.
    """
    there = [path for path in paths if (tree / path).is_file()]
    if not there:
        return []
    done = subprocess.run(
        [
            *(str(check.python), "-m", "mypy", "--no-error-summary", "--no-pretty"),
            *("--config-file", str(check.config), "--cache-dir", os.devnull),
            *("--python-version", check.version, *there),
        ],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [
        Mistyped(match["path"], int(match["line"]), match["text"])
        for match in map(_LINE.fullmatch, done.stdout.splitlines())
        if match
    ]
    if bool(done.returncode) != bool(found):
        said = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise EnvironmentProblem(f"upstream's mypy failed: {said}")
    return found


def new_errors(before: Iterable[Mistyped], after: Iterable[Mistyped]) -> list[Mistyped]:
    """Those of ``after`` that ``before`` lacks, wherever in a file they stand."""
    known = Counter((error.path, error.text) for error in before)
    found = []
    for error in after:
        if known[error.path, error.text]:
            known[error.path, error.text] -= 1
        else:
            found.append(error)
    return found
