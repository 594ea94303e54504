"""README.md's table of texts is what the series files say, line by line."""

from __future__ import annotations

import subprocess
import sys

from patchkit.releases import PROJECT, load_releases
from patchkit.text_table import count_texts, text_homes

TOOL = PROJECT / "tools" / "readme_tables.py"


def test_the_readme_is_not_stale() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"make tables\n{done.stdout}{done.stderr}"


def test_homes_are_those_of_the_series_lines() -> None:
    releases = load_releases()
    homes = text_homes(releases)
    assert list(homes)[:3] == ["0.22", "0.23", "0.24"]
    texts = set()
    for name, row in homes.items():
        folder = releases.release[name].path
        lines = [
            line
            for file in folder.glob("series*")
            for line in file.read_text().splitlines()
            if line and not line.startswith("#")
        ]
        assert len(lines) == len(row)
        for line, home in zip(lines, row.values(), strict=True):
            where = (folder / line).resolve()
            assert where.is_file()
            assert where.parent.name == f"v{home}"
            texts.add(where)
    assert count_texts(releases) == len(texts)
