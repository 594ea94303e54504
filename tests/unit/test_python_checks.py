"""Patched Python files compile, and upstream's rules pass no worse than before."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit import python_checks
from patchkit.errors import EnvironmentProblem
from patchkit.file_state import FileState
from patchkit.findings import Finding
from patchkit.plan import Plan, PlannedFile
from patchkit.python_checks import check_python

CONFIG = """
[tool.ruff.lint]
select = ["E", "F", "I", "B"]
[tool.ruff.lint.per-file-ignores]
"pkg/free/**" = ["ALL"]
"""
OLD = b"import os\nimport sys\n\nprint(sys.path)\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "upstream.toml"
    path.write_text(CONFIG)
    return path


def planned(
    after: bytes, before: bytes | None = OLD, path: str = "pkg/m.py"
) -> PlannedFile:
    """A file whose lines that are not in ``before`` were added by patch line 100 on."""
    old = (before or b"").split(b"\n")
    origins = tuple(
        None if line in old else ("p.patch", 100 + number)
        for number, line in enumerate(after.removesuffix(b"\n").split(b"\n"), start=1)
    )
    state = None if before is None else FileState(before)
    return PlannedFile(path, state, FileState(after), ("p.patch",), origins)


def check(
    *files: PlannedFile,
    config: Path | None = None,
    version: tuple[int, int] | None = None,
    packages: tuple[str, ...] = (),
) -> list[Finding]:
    plan = Plan("apply", files)
    return check_python(
        plan, feature_version=version, ruff_config=config, packages=packages
    )


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_what_was_there_before_is_not_held_against_a_patch(config: Path) -> None:
    """`import os` is unused before and after, on another line."""
    after = b"# a comment\n" + OLD
    assert check(planned(after), config=config) == []


def test_a_package_of_the_source_is_no_namespace_package(config: Path) -> None:
    """vLLM 0.30 selects INP; the source has the __init__.py that no patch touches."""
    text = config.read_text().replace("select = [", 'select = ["INP", ')
    assert "INP" in text
    config.write_text(text)
    new = planned(b"x = 1\n", before=None, path="pkg/sub/new.py")
    (finding,) = check(new, config=config, packages=("other",))
    assert "INP001" in finding.message
    assert check(new, config=config, packages=("pkg", "pkg/sub")) == []


def test_a_file_that_does_not_compile(config: Path) -> None:
    (finding,) = check(planned(OLD + b"def f(:\n"), config=config)
    assert finding.code == "P401"
    assert (finding.path, finding.line) == ("p.patch", 105)
    assert "pkg/m.py: line 5" in finding.message


def test_a_broken_file_hides_nothing_in_the_others(config: Path) -> None:
    broken = planned(OLD + b"def f(:\n")
    other = planned(OLD + b"x = None\nprint(x == None)\n", path="pkg/other.py")
    assert codes(check(broken, other, config=config)) == ["P401", "P403"]


@pytest.mark.parametrize(
    "data", [b"x = '\0'\n", b"# coding: nonsense\n", b"\xff = 1\n"]
)
def test_bytes_that_are_no_source(data: bytes) -> None:
    assert codes(check(planned(data, None))) == ["P401"]


def test_what_upstream_writes_for_a_newer_python() -> None:
    before = b"x = (\n"
    assert check(planned(before + b"# more\n", before)) == []


def test_a_new_warning() -> None:
    before = OLD + b"if sys.path is 'a':\n    pass\n"
    after = before + b"if sys.path is 'b':\n    pass\n"
    (finding,) = check(planned(after, before))
    assert (finding.code, finding.line) == ("P402", 107)
    assert check(planned(b"#\n" + before, before)) == []


def test_the_images_python() -> None:
    new = OLD + b"match sys.path:\n    case []:\n        pass\n"
    assert check(planned(new), version=(3, 10)) == []
    (finding,) = check(planned(new), version=(3, 9))
    assert finding.code == "P405"
    assert "Python 3.9" in finding.message
    assert check(planned(new), version=(sys.version_info[0], 99)) == []


def test_upstreams_rules(config: Path) -> None:
    new = OLD + b"print(f'nothing')\n"
    finding = check(planned(new), config=config)[0]
    assert (finding.code, finding.path, finding.line) == ("P403", "p.patch", 105)
    assert "F541" in finding.message


def test_the_same_violation_twice_counts_twice(config: Path) -> None:
    before = OLD + b'print(f"nothing")\n'
    after = before + b'print(f"nothing")\n'
    assert codes(check(planned(after, before), config=config)) == ["P403"]


def test_per_file_ignores_see_upstreams_paths(config: Path) -> None:
    new = OLD + b"print(f'nothing')\n"
    assert "P403" not in codes(check(planned(new, path="pkg/free/m.py"), config=config))


def test_the_projects_own_modules_are_first_party(config: Path) -> None:
    """Of the project only the patched files are there for ruff to look at."""
    new = b"import numpy\n\nfrom pkg.absent import x\n\nprint(numpy, x)\n"
    assert check(planned(new, None), config=config) == []


@pytest.mark.parametrize(
    "source",
    [
        *(b"x = " + b"-" * 100_000 + b"1\n", b"x = " + b"1+" * 50_000 + b"1\n"),
        *(b"x = a" + b".b" * 50_000 + b"\n", b"x = " + b"(" * 9000 + b")" * 9000),
    ],
    ids=["unary", "sum", "attribute", "parentheses"],
)
def test_nested_too_deep_for_the_compiler(source: bytes) -> None:
    """The parser's MemoryError or RecursionError is about the file, not this run."""
    assert codes(check(planned(source))) == ["P401"]
    assert check(planned(source + b"#\n", source)) == []


def test_format_stays(config: Path) -> None:
    assert codes(check(planned(OLD + b"x = {  }\n"), config=config)) == ["P404"]
    worse = b"x = {  }\n"
    assert check(planned(worse + b"y = [  ]\n", worse), config=config) == []


def test_other_files_are_left_alone(config: Path) -> None:
    text = planned(b"def f(:\n", None, "pkg/m.txt")
    gone = replace(planned(OLD), after=None)
    same = replace(planned(OLD), before=FileState(OLD), after=FileState(OLD))
    assert check(text, gone, same, config=config) == []


def test_no_ruff(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_checks.sysconfig, "get_path", lambda _: "/nonexistent")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentProblem, match="ruff"):
        check(planned(OLD + b"#\n"), config=config)
    assert check(planned(OLD + b"#\n")) == []


def test_a_config_ruff_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[tool.ruff.lint]\nselect = ['NONSENSE']\n")
    with pytest.raises(EnvironmentProblem, match="ruff"):
        check(planned(OLD + b"#\n"), config=path)


def test_settings_of_the_caller_do_not_count(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUFF_OUTPUT_FORMAT", "github")
    monkeypatch.setenv("RUFF_OUTPUT_FILE", "/nonexistent/x")
    assert check(planned(OLD + b"# fine\n"), config=config) == []


def test_it_is_quick(config: Path) -> None:
    """Seven files, one of 7,000 lines: far from half a second on an idle machine."""
    body = b"def f_%d(x):\n    return x + %d\n\n\n"
    sizes = [1750, 500, 500, 300, 200, 100, 100]
    files = []
    for number, size in enumerate(sizes):
        before = b"".join(body % (n, n) for n in range(size)).rstrip() + b"\n"
        after = before + b"\n\nX = 1\n"
        files.append(planned(after, before, f"pkg/m{number}.py"))
    best = 60.0
    for _ in range(3):
        began = time.perf_counter()
        assert check(*files, config=config, version=(3, 12)) == []
        best = min(best, time.perf_counter() - began)
    assert best < 2.0
