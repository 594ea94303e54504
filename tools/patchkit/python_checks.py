"""Checks on the Python files a plan changes: they compile, and ruff is no worse."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from patchkit.errors import EnvironmentProblem
from patchkit.file_state import FileState
from patchkit.findings import Finding
from patchkit.plan_types import Plan, PlannedFile
from patchkit.scratch import scratch_folder

_SIDES = ("before", "after")


def check_python(
    plan: Plan,
    *,
    feature_version: tuple[int, int] | None,
    ruff_config: Path | None,
    packages: Collection[str] = (),
) -> list[Finding]:
    """Return findings for the ``.py`` files that ``plan`` changes.

    ``feature_version`` is the Python the files will run under. ``ruff_config`` is
    upstream's ``pyproject.toml``; None leaves ruff out. ``packages`` are folders that
    have an ``__init__.py`` in the source: without it ruff takes a file for part of a
    namespace package (INP001, upstream's rule since 0.30). What a file had before
    the patches is never held against them. Raises EnvironmentProblem without ruff.
    """
    files = [
        file
        for file in plan.changes
        if file.path.endswith(".py")
        and file.after is not None
        and (file.before is None or file.before.data != file.after.data)
    ]
    if not files:
        return []
    if ruff_config is None:
        return [found for file in files for found in _compiled(file, feature_version)]
    with _Ruff(files, ruff_config, packages) as ruff:
        # Ruff works in its own process while this one compiles.
        by_path = {file.path: _compiled(file, feature_version) for file in files}
        # Of a file that does not parse ruff would only say so again.
        broken = {
            path
            for path, found in by_path.items()
            if any(finding.code == "P401" for finding in found)
        }
        findings = [finding for found in by_path.values() for finding in found]
        findings += ruff.lint(skip=broken)
        findings += ruff.layout(skip=broken)
    return findings


@dataclass(frozen=True)
class _Said:
    """What the compiler said of one file: at most one error, and its warnings."""

    error: str = ""
    line: int = 0
    warnings: tuple[tuple[str, int], ...] = ()


def _compile(state: FileState) -> _Said:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compile(state.data, "<patched>", "exec", dont_inherit=True)
        except SyntaxError as error:
            return _Said(error.msg, error.lineno or 0)
        except ValueError as error:
            return _Said(str(error))
        except (MemoryError, RecursionError):
            # What the parser raises where its own stack is at an end.
            return _Said("too deeply nested for this Python")
    # An invalid escape was a DeprecationWarning until Python 3.12.
    kinds = (SyntaxWarning, DeprecationWarning)
    return _Said(
        warnings=tuple(
            (str(item.message), item.lineno)
            for item in caught
            if issubclass(item.category, kinds)
        )
    )


def _compiled(
    file: PlannedFile, feature_version: tuple[int, int] | None
) -> list[Finding]:
    assert file.after is not None
    said = _compile(file.after)
    if said.error:
        if file.before is not None and _compile(file.before).error == said.error:
            # Upstream writes for a newer Python than this one: nothing to judge by.
            return []
        message = f"line {said.line} does not compile: {said.error}"
        return [_at(file, said.line, "P401", message)]
    findings = [
        _at(file, line, "P402", f"line {line}: new compiler warning: {text}")
        for text, line in _new_warnings(file, said)
    ]
    # A newer version than this Python's own adds nothing to what compile() did.
    if feature_version is not None and feature_version < sys.version_info[:2]:
        try:
            ast.parse(file.after.data, feature_version=feature_version)
        except SyntaxError as error:
            version = ".".join(map(str, feature_version))
            line = error.lineno or 0
            message = f"line {line} is no Python {version}: {error.msg}"
            findings.append(_at(file, line, "P405", message))
        except (MemoryError, RecursionError):
            # Objects nest deeper than compile() had to: nothing to judge by.
            return findings
    return findings


def _new_warnings(file: PlannedFile, said: _Said) -> list[tuple[str, int]]:
    if not said.warnings:
        return []
    before = _compile(file.before).warnings if file.before else ()
    known = Counter(text for text, _ in before)
    new = []
    for text, line in said.warnings:
        if known[text]:
            known[text] -= 1
        else:
            new.append((text, line))
    return new


def _at(file: PlannedFile, row: int, code: str, message: str) -> Finding:
    """A finding at the added line nearest to ``row`` of the file after."""
    origins = [
        (abs(number - row), origin)
        for number, origin in enumerate(file.origins, start=1)
        if origin is not None
    ]
    name = file.patches[-1] if file.patches else file.path
    path, line = min(origins)[1] if origins else (name, 0)
    return Finding(path, line, code, f"{file.path}: {message}")


class _Ruff:
    """Ruff over both images, in a scratch folder with upstream's own paths.

    Each image lies beside a copy of upstream's configuration, so that per-file
    rules, ``src`` and excludes mean what they mean upstream.
    """

    def __init__(
        self, files: Sequence[PlannedFile], config: Path, packages: Collection[str]
    ) -> None:
        self._files = files
        self._config = config
        self._packages = frozenset(packages)
        self._program = _find_ruff()
        self._unparsable: set[str] = set()
        self._scratch = ExitStack()

    def __enter__(self) -> _Ruff:
        self._root = self._scratch.enter_context(scratch_folder("ruff")).resolve()
        config = self._config.read_bytes()
        for side in _SIDES:
            folder = self._root / side
            folder.mkdir()
            (folder / "pyproject.toml").write_bytes(config)
            for file in self._files:
                state = file.before if side == "before" else file.after
                if state is not None:
                    target = folder / file.path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(state.data)
                    self._mark_packages(folder, file.path)
        first = sorted({file.path.partition("/")[0] for file in self._files})
        names = json.dumps(_first_party(config) + first)
        # Ruff tells first-party imports by looking for the module's file, and
        # nearly all of the project's files are not here.
        self._options = [
            "--no-cache",
            "--config",
            f"lint.isort.known-first-party = {names}",
        ]
        self._check = self._start("check", "--output-format", "json", "--exit-zero")
        return self

    def _mark_packages(self, folder: Path, path: str) -> None:
        for parent in PurePosixPath(path).parents:
            mark = folder / parent / "__init__.py"
            if str(parent) in self._packages and not mark.exists():
                mark.touch()

    def __exit__(self, *_: object) -> None:
        if self._check.poll() is None:
            self._check.kill()
        self._check.communicate()
        self._scratch.close()

    def _start(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("RUFF_")
        }
        return subprocess.Popen(
            [self._program, command, *self._options, *words, *_SIDES],
            cwd=self._root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def _finish(self, process: subprocess.Popen[bytes]) -> bytes:
        out, err = process.communicate()
        if process.returncode:
            lines = err.decode("utf-8", "replace").strip().splitlines() or [
                "no message"
            ]
            raise EnvironmentProblem(
                f"ruff cannot check with {self._config}: {lines[0]}",
                hint="run it by hand with --config to see all it says",
            )
        return out

    def lint(self, skip: set[str]) -> list[Finding]:
        """Violations that the images after have and those before have not."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for item in json.loads(self._finish(self._check)):
            place = Path(item["filename"]).relative_to(self._root).as_posix()
            side, _, path = place.partition("/")
            found.setdefault((side, path), []).append(item)
            if item["code"] in (None, "invalid-syntax"):
                self._unparsable.add(place)
        findings = []
        for file in self._files:
            if file.path in skip:
                continue
            before = Counter(
                _key(item, file.before) for item in found.get(("before", file.path), ())
            )
            for item in found.get(("after", file.path), ()):
                key = _key(item, file.after)
                if before[key]:
                    before[key] -= 1
                    continue
                row = item["location"]["row"]
                message = f"line {row}: {key[0]} {item['message']}"
                findings.append(_at(file, row, "P403", message))
        return findings

    def layout(self, skip: set[str]) -> list[Finding]:
        """Files that were as ``ruff format`` writes them, and are no longer."""
        # Ruff's exit status tells nothing of the rest once a file does not parse.
        for place in self._unparsable:
            (self._root / place).unlink(missing_ok=True)
        self._finish(self._start("format", "--quiet"))
        findings = []
        for file in self._files:
            new = self._read("after", file)
            if new is None or file.after is None or file.path in skip:
                continue
            kept = file.before is None or self._read("before", file) == file.before.data
            if new == file.after.data or not kept:
                continue
            row = _first_difference(file.after.data, new)
            message = f"ruff format would write line {row} otherwise"
            findings.append(_at(file, row, "P404", message))
        return findings

    def _read(self, side: str, file: PlannedFile) -> bytes | None:
        path = self._root / side / file.path
        return path.read_bytes() if path.is_file() else None


def _key(item: dict[str, Any], state: FileState | None) -> tuple[str, bytes]:
    """Code and text of the line: line numbers differ before and after."""
    lines = state.data.split(b"\n") if state else []
    row = item["location"]["row"] - 1
    return item["code"] or "syntax", lines[row].strip() if row < len(lines) else b""


def _first_difference(old: bytes, new: bytes) -> int:
    ours, theirs = old.split(b"\n"), new.split(b"\n")
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False), start=1):
        if one != other:
            return number
    return min(len(ours), len(theirs))


def _first_party(config: bytes) -> list[str]:
    # Here, where upstream's rules are asked for: before 3.11 it is no part of Python,
    # and an image in which a plain diff is applied may lack it.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    tool = tomllib.loads(config.decode("utf-8")).get("tool", {})
    isort = tool.get("ruff", {}).get("lint", {}).get("isort", {})
    return list(isort.get("known-first-party", []))


def _find_ruff() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "ruff"
    if beside.is_file():
        return str(beside)
    found = shutil.which("ruff")
    if found is None:
        raise EnvironmentProblem("ruff is not installed", hint="make venv")
    return found
