"""Runs ``tests/upstream/in_tree`` in a patched tree, and measures what it covers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.errors import EnvironmentProblem
from patchkit.releases import PROJECT, Release
from patchkit.series import load_series
from patchkit.source_tree import make_tree
from patchkit.upstream_env import upstream_python

IN_TREE = PROJECT / "tests" / "upstream" / "in_tree"


@dataclass(frozen=True)
class UpstreamRun:
    """One pytest run: its exit status, its output, and lines run by path.

    ``left_out`` has the tests that were not collected, each with the reason.
    ``lines`` maps a path of the series to the executable lines that ran and those
    that did not, as coverage.py has them.
    """

    status: int
    output: str
    passed: int
    left_out: tuple[str, ...]
    lines: dict[str, tuple[frozenset[int], frozenset[int]]]


def run_upstream_tests(
    release: Release, folder: Path, *, version: str | None = None
) -> UpstreamRun:
    """Make a patched tree in ``folder`` and run the tests there, under coverage.

    Raises EnvironmentProblem when the run gives no coverage at all.
    """
    series = load_series(release)
    tree = folder / "tree"
    make_tree(release, tree, version=version, only="vllm/")
    python = upstream_python(release)
    data = folder / "coverage"
    include = ",".join(str(tree / path) for path in series.paths)
    environment = {
        **tree_environment(tree),
        "COVERAGE_FILE": str(data),
        # Not this process's coverage settings, should it be measured itself.
        "COVERAGE_RCFILE": os.devnull,
    }
    tests = subprocess.run(
        [
            *(str(python), "-m", "coverage", "run", f"--include={include}"),
            *("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"),
            *("-c", os.devnull, "--rootdir", str(IN_TREE)),
            *("--confcutdir", str(IN_TREE), str(IN_TREE)),
        ],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    report = folder / "coverage.json"
    done = subprocess.run(
        [str(python), "-m", "coverage", "json", "-q", "-o", str(report)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(tests.stdout.splitlines()[-20:])
        raise EnvironmentProblem(f"the upstream tests gave no coverage:\n{tail}")
    counted = re.search(r"(\d+) passed", tests.stdout)
    return UpstreamRun(
        tests.returncode,
        tests.stdout,
        int(counted[1]) if counted else 0,
        tuple(re.findall(r"^left out: (.*)$", tests.stdout, re.MULTILINE)),
        _lines(json.loads(report.read_text()), tree),
    )


def tree_environment(tree: Path) -> dict[str, str]:
    """The environment in which the release's interpreter imports ``tree``.

    Bytecode is kept: importing torch and vLLM without takes most of a minute.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(tree)}


def _lines(
    report: dict[str, Any], tree: Path
) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
    found = {}
    for name, entry in report["files"].items():
        path = Path(os.path.realpath(tree.parent / name)).relative_to(
            os.path.realpath(tree)
        )
        found[path.as_posix()] = (
            frozenset(entry["executed_lines"]),
            frozenset(entry["missing_lines"]),
        )
    return found
