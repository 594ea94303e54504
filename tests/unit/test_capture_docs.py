"""``docs/capture-traces.md`` names the options, fields and log lines of the patches."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from patchkit.releases import PROJECT

PAGE = PROJECT / "docs" / "capture-traces.md"
PATCHES = PROJECT / "patches" / "v0.25"


def added_modules(patch: Path) -> list[ast.Module]:
    """The new Python files of a patch."""
    sections = patch.read_text().split("\ndiff --git ")[1:]
    return [
        ast.parse(
            "\n".join(
                line[1:]
                for line in section.splitlines()
                if line.startswith("+") and not line.startswith("+++")
            )
        )
        for section in sections
    ]


def calls() -> Iterator[tuple[str, str]]:
    """Name of each function that is called with a text first, and the text."""
    for module in added_modules(PATCHES / "0001-capture-traces-helper.patch"):
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield node.func.attr, first.value


def table(title: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    section = PAGE.read_text().partition(f"# {title}\n")[2]
    found = re.search(r"^\| .*\n\| ---.*\n((?:\|.*\n)+)", section, re.M)
    assert found, title
    return [
        [cell.strip() for cell in row.strip("|\n").split(" | ")]
        for row in found[1].splitlines()
    ]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.S | re.M)


def test_every_log_line_is_explained() -> None:
    levels = {"exception": "error", "log_error": "error"}
    wanted = set()
    for name, text in calls():
        if name in ("info", "warning", "error", "exception", "debug", "log_error"):
            line = re.sub("%[sd]", "…", text)
            # What it logs is the text and the reason.
            line += ": …" if name == "log_error" else ""
            wanted.add((levels.get(name, name).upper(), line))
    wanted.remove(("ERROR", "…"))
    rows = table("What the log says")
    assert {(level, line) for level, line, _ in rows} == wanted
    assert len(rows) == len(wanted)


def test_every_field_of_the_index_is_explained() -> None:
    fields = [
        key.value
        for module in added_modules(PATCHES / "0001-capture-traces-helper.patch")
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef) and function.name == "add_graph"
        for node in ast.walk(function)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    ]
    assert [row[0].strip("`") for row in table("The files")] == fields


def test_every_option_of_the_patches_is_explained() -> None:
    text = (PATCHES / "0005-profiler-config-capture-option.patch").read_text()
    added = set(re.findall(r"^\+    (capture_\w+):", text, re.M))
    assert len(added) == 3
    assert added <= {row[0].strip("`") for row in table("Options")}


def test_every_example_switches_the_same_on() -> None:
    options = {row[0].strip("`") for row in table("Options")}
    [serve, _] = blocks("sh")
    found = [json.loads(serve.partition("'")[2].rpartition("'")[0])]
    [offline] = [
        node
        for node in ast.walk(ast.parse(blocks("python")[0]))
        if isinstance(node, ast.keyword) and node.arg == "profiler_config"
    ]
    found.append(ast.literal_eval(offline.value))
    folded = re.search(r"\{.*?\}", blocks("yaml")[0], re.S)
    assert folded
    found.append(json.loads(folded[0]))
    for each in found:
        assert set(each) <= options
        assert each | {"torch_profiler_dir": ""} == found[0] | {
            "torch_profiler_dir": ""
        }


def test_pictures_are_there() -> None:
    for name in re.findall(r"!\[.*?\]\((.*?)\)", PAGE.read_text()):
        assert (PAGE.parent / name).is_file()
