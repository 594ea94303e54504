"""What GitHub's runner does with a composite action, as far as action.yml needs it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bare_python import environment

from patchkit.releases import PROJECT

_INPUT = re.compile(r"\$\{\{ inputs\.(\w+) \}\}")
_OUTPUT = re.compile(r"\$\{\{ steps\.(\w+)\.outputs\.(\w+) \}\}")
_ANNOTATION = re.compile(
    r"::(error|warning|notice) (?:file=([^,:]+),line=(\d+),)?title=([^,:]+)::(.+)"
)


@dataclass(frozen=True)
class Annotation:
    """One workflow command, its escapes undone."""

    kind: str
    file: str
    line: int
    title: str
    message: str


@dataclass(frozen=True)
class Job:
    """How the step ended, and what it left for GitHub to read."""

    status: int
    stdout: str
    stderr: str
    outputs: dict[str, str]
    summary: str

    @property
    def annotations(self) -> list[Annotation]:
        found = [_ANNOTATION.fullmatch(line) for line in self.stdout.split("\n")]
        return [
            Annotation(
                match[1],
                _unescaped(match[2] or ""),
                int(match[3] or 0),
                _unescaped(match[4]),
                _unescaped(match[5]),
            )
            for match in found
            if match is not None
        ]


def _unescaped(text: str) -> str:
    for code, char in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r")):
        text = text.replace(code, char)
    return text.replace("%25", "%")


def run_action(
    action: Mapping[str, Any],
    workspace: Path,
    temp: Path,
    python: Path,
    inputs: Mapping[str, str],
    **more: str,
) -> Job:
    """Run the one step of ``action`` by bash, as GitHub does, in ``workspace``.

    ``python`` is the folder with the runner's python3. Raises AssertionError for what
    GitHub would refuse or read in another way than this.
    """
    [step] = action["runs"]["steps"]
    given = {name: entry["default"] for name, entry in action["inputs"].items()}
    assert set(inputs) <= set(given), "an input that the action does not have"
    given |= inputs
    assert "${{" not in step["run"], "an input in the text of a script is code"
    variables = {}
    for name, text in step["env"].items():
        [key] = _INPUT.fullmatch(text).groups()
        variables[name] = given[key]
    files = {name: temp / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    assert step["shell"] == "bash"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=workspace,
        env=environment()
        | {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(PROJECT),
            "GITHUB_WORKSPACE": str(workspace),
            "RUNNER_TEMP": str(temp),
            "PATH": f"{python}{os.pathsep}{os.environ['PATH']}",
            # A file's name need not be text, and the log takes UTF-8 alone.
            "PYTHONIOENCODING": "utf-8:strict",
            **{name: str(file) for name, file in files.items()},
            **variables,
            **more,
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    written = files["GITHUB_OUTPUT"].read_text()
    assert "<<" not in written, "of the two forms of an output this reads the plain one"
    values = dict(line.split("=", 1) for line in written.splitlines())
    outputs = {}
    for name, entry in action["outputs"].items():
        identifier, key = _OUTPUT.fullmatch(entry["value"]).groups()
        assert identifier == step["id"]
        outputs[name] = values.pop(key, "")
    assert not values, "outputs that the action does not declare"
    summary = files["GITHUB_STEP_SUMMARY"].read_text()
    return Job(done.returncode, done.stdout, done.stderr, outputs, summary)
