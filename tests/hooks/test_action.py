"""The GitHub action: its script, run as GitHub runs it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import pytest

from patchkit.releases import PROJECT

HOSTILE = [
    b"with blank.patch",
    b"it's.patch",
    b'quo"te.patch',
    b"$(touch pwned).patch",
    b"`touch pwned`.patch",
    b"x;touch pwned;.patch",
    b"-x.patch",
    b"--tree=x.patch",
    b"-",
    b"a,b:c%0A.patch",
    b"new\nline.patch",
    b"::error::x.patch",
    b"back\\slash.patch",
    b"#[x](y)|<b>.patch",
    b"*.patch",
    b"[a].patch",
    b"caf\xc3\xa9.patch",
    b"\xff.patch",
]


@pytest.fixture
def workspace(tmp_path: Path, sample: Path) -> Path:
    """The sample, as a repository that was checked out."""
    folder = tmp_path / "workspace"
    shutil.copytree(sample, folder)
    return folder


def read_sarif(file: str) -> list[dict[str, Any]]:
    """The results of a SARIF file, after what GitHub's upload asks of one."""
    document = json.loads(Path(file).read_text(encoding="utf-8"))
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    [run] = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        [place] = result["locations"]
        assert place["physicalLocation"]["region"]["startLine"] >= 1
        address = urlsplit(place["physicalLocation"]["artifactLocation"]["uri"])
        assert address[:2] == address[3:] == ("", "")
        assert address.path.isascii()
        assert address.path.isprintable()
        assert " " not in address.path
    return run["results"]


def test_a_good_patch(act, workspace: Path) -> None:
    job = act(workspace, patches="patches/good.patch", tree="src")
    assert job.status == 0, job.stdout + job.stderr
    assert job.annotations == []
    assert job.outputs["findings"] == job.outputs["errors"] == "0"
    # It is uploaded as well: that is how alerts of mended patches close.
    assert read_sarif(job.outputs["sarif"]) == []
    assert job.summary == "### verify-hunks: no findings in 1 patches\n"


def test_a_bad_patch(act, workspace: Path) -> None:
    job = act(workspace, patches="patches/bad.patch", tree="src")
    assert job.status == 1, job.stdout + job.stderr
    said = [(found.file, found.line, found.title) for found in job.annotations]
    assert said == [
        ("patches/bad.patch", 12, "W301 trailing-blank"),
        ("patches/bad.patch", 7, "T210 context-moved"),
    ]
    assert "\nhint: make the patch again" in job.annotations[1].message
    # Each line but the last one is an annotation.
    assert job.stdout.count("\n") == len(job.annotations) + 1
    assert job.outputs["findings"] == job.outputs["errors"] == "2"
    results = read_sarif(job.outputs["sarif"])
    assert [result["ruleId"] for result in results] == ["W301", "T210"]
    assert job.summary.startswith("### verify-hunks: 2 errors in 1 patches\n")
    assert job.summary.count("\n| ") == 3


def test_warnings_alone_pass(act, workspace: Path) -> None:
    few = PROJECT / "tests/diffs/H105-few-context-lines/bad.diff"
    shutil.copy(few, workspace / "few.diff")
    job = act(workspace, patches="few.diff")
    assert job.status == 0, job.stdout + job.stderr
    assert {found.kind for found in job.annotations} == {"warning"}
    assert job.outputs["errors"] == "0"
    assert int(job.outputs["findings"]) == len(read_sarif(job.outputs["sarif"])) > 0


def test_width(act, workspace: Path) -> None:
    shutil.copy(PROJECT / "tests/diffs/W302-width/bad.diff", workspace / "wide.diff")
    assert act(workspace, patches="wide.diff").status == 1
    assert act(workspace, patches="wide.diff", width="120").status == 0
    job = act(workspace, patches="patches/good.patch", width="wide")
    assert job.status == 2
    assert "no number of columns" in job.annotations[0].message


def test_hostile_names(act, workspace: Path) -> None:
    shutil.rmtree(workspace / "patches")
    text = (PROJECT / "tests/hooks/sample/patches/bad.patch").read_bytes()
    for name in HOSTILE:
        (workspace / os.fsdecode(name)).write_bytes(text)
    job = act(workspace, patches="**/*.patch\n-")
    assert job.status == 1, job.stdout + job.stderr
    assert job.outputs["findings"] == str(len(HOSTILE))
    # Each file was read, the dash as well.
    assert {found.title for found in job.annotations} == {"W301 trailing-blank"}
    names = {
        unquote_to_bytes(
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        )
        for result in read_sarif(job.outputs["sarif"])
    }
    assert names == set(HOSTILE)
    shown = {found.file.removeprefix("./") for found in job.annotations}
    assert shown == {os.fsdecode(name) for name in HOSTILE} - {"\udcff.patch"} | {
        "\\udcff.patch"
    }
    assert job.stdout.count("\n") == len(HOSTILE) + 1
    assert job.summary.count("\n") == len(HOSTILE) + 4
    for structure in ("<b>", "[x]", "](", "`", "%0A"):
        assert structure not in job.summary
    there = {os.fsencode(path.name) for path in workspace.iterdir()}
    assert there == {*HOSTILE, b"src"}, "something in a name was run"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"patches": "$(touch pwned)"}, "$(touch pwned): no such file"),
        ({"patches": '"; touch pwned; "'}, "no such file"),
        ({"patches": "patches"}, "no such file (for a folder: patches/**/*.patch)"),
        ({"patches": "*.patch"}, "no file matches *.patch"),
        ({"patches": "\n \n"}, "no file matches an empty list"),
        ({"patches": "/etc/passwd"}, "lies outside"),
        ({"patches": "../*.patch"}, "lies outside"),
        ({"tree": "$(touch pwned)"}, "$(touch pwned)"),
        ({"tree": "none"}, "none"),
        ({"sarif": "a\nfindings=0"}, "without line breaks"),
        ({"sarif": "patches"}, "Is a directory"),
        ({"width": "-1"}, "no number of columns"),
    ],
)
def test_wrong_inputs(act, workspace: Path, inputs, said: str) -> None:
    """One annotation of the job, exit 2, and nothing that looks like a result."""
    job = act(workspace, **inputs)
    assert job.status == 2, job.stdout + job.stderr
    [error] = [found for found in job.annotations if not found.file]
    assert said in error.message
    assert not any(job.outputs.values())
    assert "bug of the kit" not in job.stderr
    assert not (workspace / "pwned").exists()


def test_no_patches_at_all(act, tmp_path: Path) -> None:
    (tmp_path / "empty/.git").mkdir(parents=True)
    (tmp_path / "empty/.git/x.patch").touch()
    job = act(tmp_path / "empty")
    assert job.status == 2
    assert "no file matches **/*.patch" in job.annotations[0].message


def test_sarif_where_it_is_wanted(act, workspace: Path) -> None:
    job = act(workspace, patches="patches/bad.patch", sarif="out put/$(x).sarif")
    assert job.status == 1
    assert job.outputs["sarif"] == "out put/$(x).sarif"
    assert len(read_sarif(str(workspace / "out put/$(x).sarif"))) == 1


def test_files_of_the_workspace_are_never_imported(act, workspace, tmp_path) -> None:
    """A pull request brings them; they would run with what the job may do."""
    temp = tmp_path / "temp"
    temp.mkdir()
    for name in ("pip", "git", "unidiff", "patchkit", "json", "sitecustomize"):
        (workspace / f"{name}.py").write_text("open('pwned', 'w')\n")
    job = act(workspace, temp, patches="patches/good.patch", tree="src")
    assert job.status == 0, job.stdout + job.stderr
    assert not (workspace / "pwned").exists()


def test_libraries_are_fetched_once(act, workspace: Path, tmp_path: Path) -> None:
    """The second use in a job needs no index; without one the first says so."""
    good = {"patches": "patches/good.patch", "tree": "src"}
    assert act(workspace, **good).status == 0
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    assert act(workspace, env=offline, **good).status == 0
    job = act(workspace, tmp_path, env=offline, **good)
    assert job.status == 2
    assert "pip could not install" in job.annotations[0].message


def test_an_old_python(act, workspace: Path, tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    job = act(workspace, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert job.status == 2
    assert "no python3 of 3.10 or later" in job.annotations[0].message


def test_pins_are_those_of_the_lock() -> None:
    """What the action installs is what the kit was tested with."""
    lock, pins = (
        {
            tuple(word for word in entry.split() if word != "\\")
            for entry in (PROJECT / "requirements" / name)
            .read_text()
            .replace("\\\n", " ")
            .splitlines()
            if entry[0].isalpha()
        }
        for name in ("lock.txt", "verify.txt")
    )
    assert pins
    assert pins <= lock
