"""Width and blanks of added lines; ruff itself is the reference for width."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchkit.parse import parse_patch
from patchkit.text_checks import check_text, overlong

WORDS = st.sampled_from(
    [
        *("x", "y" * 40, "z" * 90, "\u4e2d\u6587" * 12, "e\u0301" * 20, "\t", "# noqa"),
        *(
            "https://example.org/" + "p" * 70,
            "# type: ignore",
            "\u200b",
            "=",
            "#",
            "''",
        ),
        *("\U0001f600" * 10, "SPDX-License-Identifier:", "a" * 7, "# noqa: E501 b" * 3),
    ]
)


def ruff_widths(lines: list[str], folder: Path) -> dict[int, int]:
    """Which of the lines ruff's E501 refuses, by number from 1, and their width."""
    file = folder / "m.py"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"),
            *("--select", "E501", "--line-length", "88", "--ignore-noqa"),
            *("--output-format", "json", str(file)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    return {
        entry["location"]["row"]: int(entry["message"].partition("(")[2].split()[0])
        for entry in found
        if entry["code"] == "E501"
    }


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lines=st.lists(st.lists(WORDS, max_size=9).map(" ".join), min_size=20, max_size=60)
)
def test_width_is_ruffs(tmp_path_factory, lines: list[str]) -> None:
    # As comments, so that ruff reads every line as one logical line of a file.
    lines = [f"# {line}" for line in lines]
    ruffs = ruff_widths(lines, tmp_path_factory.mktemp("r"))
    ours = {n: w for n, line in enumerate(lines, 1) if (w := overlong(line, 88))}
    assert ours == ruffs


def added(text: bytes, path: str = "m.py") -> list[tuple[int, str]]:
    name = path.encode()
    body = b"".join(b"+" + line + b"\n" for line in text.split(b"\n")[:-1])
    count = text.count(b"\n")
    data = (
        b"diff --git a/%b b/%b\nindex 1111111..2222222 100644\n--- a/%b\n+++ b/%b\n"
        b"@@ -1,3 +1,%d @@\n a\n b\n%b c\n" % (name, name, name, name, count + 3, body)
    )
    patch = parse_patch(data, "p.diff").patch
    assert patch is not None
    return [(finding.line, finding.code) for finding in check_text(patch)]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (b"x = 1\n", []),
        (b"x = 1 \n", ["W301"]),
        (b"x = 1\t\n", ["W301"]),
        (b"   \n", ["W301"]),
        (b"\x0c\n", []),
        (b"x = 1\r\n", ["W306"]),
        (b" \tx = 1\n", ["W303"]),
        (b"=======\n", ["W304"]),
        (b">>>>>>> theirs\n", ["W304"]),
        (b"======== title\n", []),
        (b"x = " + b"1 + " * 21 + b"\n", ["W301"]),
        (b"x = " + b"1 + " * 21 + b"1\n", ["W302"]),
    ],
)
def test_added_lines(text: bytes, codes: list[str]) -> None:
    assert [code for _, code in added(text)] == codes
    assert all(line == 8 for line, _ in added(text))


def test_width_is_for_python_alone() -> None:
    wide = b"x = " + b"1 + " * 21 + b"1\n"
    assert [code for _, code in added(wide, "m.pyi")] == ["W302"]
    assert added(wide, "README.md") == []


def test_crlf_files_may_get_crlf_lines() -> None:
    data = (
        b"diff --git a/m.py b/m.py\nindex 1111111..2222222 100644\n--- a/m.py\n"
        b"+++ b/m.py\n@@ -1,2 +1,3 @@\n a\r\n+b\r\n c\r\n"
    )
    patch = parse_patch(data, "p.diff").patch
    assert patch is not None
    assert check_text(patch) == []
