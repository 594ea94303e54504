"""The kit's releases.toml with one release in it, for tests that take a table apart."""

from __future__ import annotations

import re

from patchkit.releases import PROJECT


def releases_text(name: str = "0.25") -> str:
    """The file's head and the tables of release ``name``, byte for byte."""
    text = (PROJECT / "releases.toml").read_text(encoding="utf-8")
    head, *tables = re.split(r'(?m)^(?=\[release\.")', text)
    return head + "".join(each for each in tables if f'"{name}"' in each.split("]")[0])
