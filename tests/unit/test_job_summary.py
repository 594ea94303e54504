"""The summary page of a CI job."""

from __future__ import annotations

import html

from patchkit.findings import Finding
from patchkit.job_summary import MOST_ROWS, job_summary


def test_nothing_to_say() -> None:
    assert job_summary([], 3) == "### verify-hunks: no findings in 3 patches\n"


def test_a_row_a_finding_and_no_structure_of_theirs() -> None:
    nasty = "a | b\n<img src=x> [c](d) `e` **f** www.g.h @i \udcff"
    finding = Finding(nasty, 7, "H103", nasty, hint="again")
    rows = job_summary([finding], 1).split("\n")
    assert len(rows) == 6
    where, rule, what = rows[4].removeprefix("| ").removesuffix(" |").split(" | ")
    shown = nasty.replace("\udcff", "\ufffd")
    assert html.unescape(where) == f"{shown}:7"
    assert rule == "error H103 count-too-small"
    assert html.unescape(what) == f"{shown} (hint: again)"
    assert "&#65533;" in where, "no page has a surrogate, not even as a reference"
    for sign in "|<>[]`*.@":
        assert sign not in where + what


def test_a_page_has_an_end() -> None:
    text = job_summary([Finding("p", 1, "H103", "m")] * (MOST_ROWS + 7), 1)
    assert text.count("\n| p&#58;1 |") == MOST_ROWS
    assert "… and 7 more" in text
