"""The formats of findings: JSON, GitHub's annotations, SARIF, text."""

from __future__ import annotations

import json

import pytest

from patchkit.findings import Finding
from patchkit.report import count_line, render, workflow_error

FINDINGS = [
    Finding(
        "a,b:c.patch", 3, "H103", "50% lost\nhere", hint="again", detail=("x | y",)
    ),
    Finding("p.patch", 0, "T219", "short", severity="warning"),
    Finding("p.patch", 7, "T219", "short", severity="note"),
]
SUMMARY = {"line": "3 findings", "patches": 2}


def test_text() -> None:
    assert render(FINDINGS, "text", summary=SUMMARY).splitlines() == [
        r"a,b:c.patch:3: H103 50% lost\nhere",
        "    x | y",
        "    hint: again",
        "p.patch:0: T219 warning: short",
        "p.patch:7: T219 note: short",
        "3 findings",
    ]


def test_json() -> None:
    said = json.loads(render(FINDINGS, "json", summary=SUMMARY))
    assert said["schema"] == 1
    assert said["patches"] == 2
    assert "line" not in said
    assert said["findings"][0] == {
        "path": "a,b:c.patch",
        "line": 3,
        "code": "H103",
        "rule": "count-too-small",
        "severity": "error",
        "message": "50% lost\nhere",
        "hint": "again",
        "detail": ["x | y"],
    }


def test_github() -> None:
    """Escapes as GitHub's toolkit documents them for data and for properties."""
    lines = render(FINDINGS, "github", summary=SUMMARY).splitlines()
    assert lines[0] == (
        "::error file=a%2Cb%3Ac.patch,line=3,title=H103 count-too-small"
        r"::50%25 lost\nhere%0Ax | y%0Ahint: again"
    )
    assert lines[1].startswith("::warning file=p.patch,line=1,")
    assert lines[2].startswith("::notice file=p.patch,line=7,")


def test_sarif() -> None:
    said = json.loads(render(FINDINGS, "sarif", summary=SUMMARY))
    assert said["version"] == "2.1.0"
    [run] = said["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["H103", "T219"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        [place] = result["locations"]
        assert place["physicalLocation"]["region"]["startLine"] >= 1
    assert [result["level"] for result in run["results"]] == [
        "error",
        "warning",
        "note",
    ]


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("p/a b%#?.patch", "p/a%20b%25%23%3F.patch"),
        ("a:b.patch", "a%3Ab.patch"),
        ("./caf\u00e9.patch", "caf%C3%A9.patch"),
        ("\udcff\n.patch", "%FF%0A.patch"),
        ("back\\slash.patch", "back%5Cslash.patch"),
    ],
)
def test_sarif_names_files_by_uri(path: str, uri: str) -> None:
    said = json.loads(render([Finding(path, 1, "H103", "m")], "sarif", summary={}))
    [place] = said["runs"][0]["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_an_annotation_of_no_file() -> None:
    said = workflow_error("a:b", "50%\nlost")
    assert said == "::error title=a%3Ab::50%25%0Alost"


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ([], "no findings"),
        (FINDINGS[:1], "1 error"),
        (FINDINGS, "1 error, 1 warning, 1 note"),
        (FINDINGS[:1] * 2, "2 errors"),
    ],
)
def test_count(findings, said: str) -> None:
    assert count_line(findings) == said
