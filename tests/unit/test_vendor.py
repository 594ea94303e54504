"""What the applier needs inside an image, whatever Python that has."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from test_apply_cli import patch as patch  # noqa: PLC0414
from test_apply_cli import tree as tree  # noqa: PLC0414

PROJECT = Path(__file__).parents[2]
# Stands in for Python 3.10 without tomli: neither module can be imported.
WITHOUT_TOML = """
import sys
sys.modules["tomllib"] = sys.modules["tomli"] = None
sys.path.insert(0, sys.argv.pop(1))
import apply
sys.exit(apply.main(sys.argv[1:]))
"""


def test_a_plain_diff_needs_no_toml(tree: Path, patch: Path) -> None:
    words = [str(PROJECT / "tools"), "--root", str(tree), str(patch)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TOML, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_make_vendor_takes_both_libraries_for_any_python(need) -> None:
    need(bool(shutil.which("make") and shutil.which("awk")), "make and awk")
    said = subprocess.run(
        ["make", "-n", "-C", str(PROJECT), "vendor"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    file = "requirements/lock.txt"
    locked = subprocess.run(
        ["sh", "-c", said[said.index("awk ") : said.index(file)] + file],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.findall(r"(?m)^(\w+)==\S+ +\\$", locked) == ["tomli", "unidiff"]
    assert "python_full_version" not in locked
