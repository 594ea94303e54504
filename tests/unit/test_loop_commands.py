"""The maintainer's commands as one types them, on the kit's own releases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from patchkit.releases import PROJECT, load_releases
from patchkit.source_tree import make_tree

COMMANDS = ("tree", "refresh", "drift", "drift_map", "port", "new_release")
SVG = "{http://www.w3.org/2000/svg}"


def run(tool: str, *words: object, status: int) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(PROJECT / "tools" / f"{tool}.py"), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("tool", COMMANDS)
def test_help_teaches_the_exit_codes(tool: str) -> None:
    said = run(tool, "--help", status=0).stdout
    assert said.startswith(f"usage: tools/{tool}.py")
    assert "exit: 0" in said


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("tree", ("--version", "9.9")),
        ("refresh", ("--version", "9.9")),
        ("drift", ("--from", "9.9", "--to", "0.25", "--offline")),
        ("drift", ("--from", "0.25", "--to", "9.9", "--offline")),
        ("drift", ("--from", "0.25", "--tree", "nowhere")),
        ("drift", ("--from", "0.25")),
        ("drift_map", ("--from", "9.9", "--offline")),
        ("port", ("--from", "0.25", "--to", "9.9", "--offline")),
        ("port", ("--from", "9.9", "--to", "0.25")),
    ],
)
def test_wrong_arguments_are_one_line_and_two(
    tool: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    said = run(tool, *words, status=2).stderr
    assert any(word in said for word in ("9.9", "nowhere", "required"))


def test_no_work_tree_says_what_to_type(tmp_path: Path) -> None:
    said = run("refresh", "--version", "0.25", "--tree", tmp_path / "x", status=2)
    assert "make tree" in said.stderr


def test_drift_to_itself_and_to_a_tree(tmp_path: Path) -> None:
    run("drift", "--from", "0.25", "--to", "0.25", status=0)
    make_tree(load_releases().release["0.25"], tmp_path / "tree", patched=False)
    said = run("drift", "--from", "0.25", "--tree", tmp_path / "tree", status=0)
    assert "conflict" not in said.stdout


def test_drift_names_the_change_that_broke_a_hunk() -> None:
    found = run("drift", "--from", "0.25", "--to", "0.26", "--format", "json", status=1)
    drift = json.loads(found.stdout)
    hunks = [hunk for patch in drift["patches"] for hunk in patch["hunks"]]
    assert {hunk["fit"] for hunk in hunks} >= {"exact", "moved", "conflict"}
    changes = 0
    for hunk in hunks:
        if hunk["fit"] == "conflict":
            assert hunk["expected"]["lines"] != hunk["found"]["lines"]
            changes += len(hunk["upstream_changes"])
    assert changes > 0
    text = run("drift", "--from", "0.25", "--to", "0.26", status=1).stdout
    assert "capture_torch_profiler" in text


def test_the_map_has_a_cell_for_each_patch_and_release(tmp_path: Path) -> None:
    releases = load_releases().release
    out = tmp_path / "map.svg"
    words = ("--from", "0.25", "--offline", "--out", out)
    run("drift_map", *words, status=0)
    root = ElementTree.parse(out).getroot()
    texts = [node.text or "" for node in root.iter(f"{SVG}text")]
    for release in releases.values():
        assert release.versions[0] in texts
    cells = [text for text in texts if re.fullmatch(r"\d+ of \d+", text)]
    assert len(cells) == 6 * len(releases)
    box = [float(number) for number in root.attrib["viewBox"].split()]
    for node in root.iter(f"{SVG}rect"):
        x, y = float(node.attrib.get("x", 0)), float(node.attrib.get("y", 0))
        assert x + float(node.attrib["width"]) <= box[2]
        assert y + float(node.attrib["height"]) <= box[3]
