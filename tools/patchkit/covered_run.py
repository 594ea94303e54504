"""A run of pytest in a release's environment, and which lines of a tree it covers."""

from __future__ import annotations

import codecs
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.diff_coverage import Lines
from patchkit.errors import EnvironmentProblem


@dataclass(frozen=True)
class CoveredRun:
    """One pytest run: its exit status, its output, and lines run by path.

    ``left_out`` has the tests that were not run, each with the reason. ``lines`` maps a
    path of the tree to the executable lines that ran and those that did not, as
    coverage.py has them.
    """

    status: int
    output: str
    passed: int
    left_out: tuple[str, ...]
    lines: dict[str, Lines]


def run_covered(
    python: Path,
    tree: Path,
    paths: Sequence[str],
    words: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str],
    children: bool = False,
    show: bool = False,
) -> CoveredRun:
    """Run ``pytest words`` with ``python``, measuring ``paths`` of ``tree``.

    ``folder`` is for what that writes. ``children``: in the Python processes that tests
    start, too. ``show``: the output is passed on as it comes. Raises EnvironmentProblem
    when the run gives no coverage at all.
    """
    settings = folder / "settings.ini"
    settings.write_text(_settings(folder, [tree / path for path in paths], children))

    def coverage(*arguments: str) -> subprocess.Popen[bytes]:
        command, *rest = arguments
        return subprocess.Popen(
            [
                *(str(python), "-m", "coverage", command),
                *(f"--rcfile={settings}", *rest),
            ],
            cwd=folder,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    with coverage("run", "-m", "pytest", *words) as tests:
        output = _read(tests, show)
    report = folder / "report.json"
    # Fails where there is nothing to combine, and the report with it.
    with coverage("combine", "-q") as combining:
        _read(combining, False)
    with coverage("json", "-q", "-o", str(report)) as writing:
        said = _read(writing, False)
    if writing.returncode:
        tail = "\n".join([*output.splitlines()[-20:], said])
        raise EnvironmentProblem(f"the tests gave no coverage:\n{tail}")
    counted = re.search(r"(\d+) passed", output)
    return CoveredRun(
        tests.returncode,
        output,
        int(counted[1]) if counted else 0,
        tuple(re.findall(r"^(?:left out:|SKIPPED) (.*)$", output, re.MULTILINE)),
        _lines(json.loads(report.read_text()), tree),
    )


def tree_environment(tree: Path) -> dict[str, str]:
    """The environment in which the release's interpreter imports ``tree``.

    Bytecode is kept: importing torch and vLLM without takes most of a minute.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(tree)}


def _settings(folder: Path, files: Sequence[Path], children: bool) -> str:
    """Settings of coverage.py: it traces the lines of ``files`` and of no other."""
    lines = ["[run]", f"data_file = {folder / 'lines'}", "parallel = true"]
    if sys.version_info >= (3, 12):
        # Costs nothing in other files. The environment's Python is this one.
        lines.append("core = sysmon")
    if children:
        # Those that end by os._exit, as programs do that must not free what they have.
        lines.append("patch = subprocess, _exit")
    return "\n".join([*lines, "include =", *(f"    {file}" for file in files), ""])


def _read(process: subprocess.Popen[bytes], show: bool) -> str:
    """All output of ``process``, which has ended then."""
    assert process.stdout is not None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts = []
    while data := os.read(process.stdout.fileno(), 65536):
        parts.append(decoder.decode(data))
        if show:
            print(parts[-1], end="", flush=True)
    process.wait()
    return "".join(parts)


def _lines(report: dict[str, Any], tree: Path) -> dict[str, Lines]:
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
