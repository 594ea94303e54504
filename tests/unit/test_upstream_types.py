"""Upstream's mypy hook: what it wants is read, and what the patches bring is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchkit.errors import EnvironmentProblem
from patchkit.upstream_types import (
    Mistyped,
    TypeCheck,
    new_errors,
    read_hook,
    type_errors,
)

# The two forms that releases have it in, in excerpts.
HOOK = """
  - id: mypy-3.10 # TODO
    entry: python tools/pre_commit/mypy.py "3.10"
    <<: &mypy_common
      language: python
      additional_dependencies: ["mypy==1.20.2", regex, types-PyYAML, pydantic]
  - id: mypy-3.11
    entry: python tools/pre_commit/mypy.py "3.11"
"""
LINES = """
  - id: mypy-local
    entry: python tools/pre_commit/mypy.py 0 "3.10"
    additional_dependencies: [
      "mypy[faster-cache]==1.19.1", regex,
    ]
"""


def test_what_the_hook_wants() -> None:
    wanted = ["mypy==1.20.2", "regex", "types-PyYAML", "pydantic"]
    assert read_hook(HOOK) == (wanted, "3.10")
    assert read_hook(LINES) == (["mypy[faster-cache]==1.19.1", "regex"], "3.10")


@pytest.mark.parametrize("text", ["", HOOK.replace("mypy==", "ty=="), LINES[:60]])
def test_no_hook_of_that_kind(text: str) -> None:
    with pytest.raises(EnvironmentProblem, match="no mypy hook"):
        read_hook(text)


def check(folder: Path, config: str = "[tool.mypy]\n") -> TypeCheck:
    file = folder / "upstream.toml"
    file.write_text(config)
    return TypeCheck(Path(sys.executable), file, "3.10")


def tree(folder: Path, **files: str) -> Path:
    (folder / "tree" / "pkg").mkdir(parents=True)
    for name, text in files.items():
        (folder / "tree" / "pkg" / f"{name}.py").write_text(text)
    return folder / "tree"


SOUND = "def half(x: int) -> float:\n    return x / 2\n"
WRONG = "def half(x: int) -> int:\n    return x / 2\n"


def test_errors_of_the_files_asked_for(tmp_path: Path) -> None:
    made = tree(tmp_path, a=WRONG, b=SOUND, c=WRONG)
    (found,) = type_errors(check(tmp_path), made, ["pkg/a.py", "pkg/b.py"])
    assert (found.path, found.line) == ("pkg/a.py", 2)
    assert str(found).startswith("pkg/a.py:2: ")
    assert "[return-value]" in found.text
    # Nothing of mypy's is left in the tree.
    assert sorted(path.name for path in made.iterdir()) == ["pkg"]


def test_a_file_that_a_patch_has_yet_to_add(tmp_path: Path) -> None:
    made = tree(tmp_path, b=SOUND)
    assert type_errors(check(tmp_path), made, ["pkg/a.py", "pkg/b.py"]) == []
    assert type_errors(check(tmp_path), made, ["pkg/a.py"]) == []


def test_upstream_s_settings_count(tmp_path: Path) -> None:
    made = tree(tmp_path, a=WRONG)
    quiet = check(tmp_path, '[tool.mypy]\ndisable_error_code = ["return-value"]\n')
    assert type_errors(quiet, made, ["pkg/a.py"]) == []


def test_a_mypy_that_does_not_run_is_no_result(tmp_path: Path) -> None:
    made = tree(tmp_path, a=SOUND)
    broken = check(tmp_path, '[tool.mypy]\nplugins = ["absent_plugin"]\n')
    with pytest.raises(EnvironmentProblem, match="absent_plugin"):
        type_errors(broken, made, ["pkg/a.py"])


def test_a_file_that_does_not_parse_is_an_error(tmp_path: Path) -> None:
    made = tree(tmp_path, a="def half(:\n")
    found = type_errors(check(tmp_path), made, ["pkg/a.py"])
    assert found
    assert all("[syntax]" in error.text for error in found)


def test_an_error_that_moved_is_not_new() -> None:
    before = [Mistyped("a.py", 3, "no"), Mistyped("b.py", 3, "no")]
    after = [
        Mistyped("a.py", 8, "no"),
        # The same once more, and one that is another's.
        Mistyped("a.py", 9, "no"),
        Mistyped("b.py", 3, "other"),
    ]
    assert new_errors(before, after) == after[1:]
    assert new_errors([], []) == new_errors(before, []) == []
