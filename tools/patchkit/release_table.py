"""A new release's table in ``releases.toml``; every other byte of the file stays."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from patchkit.errors import UsageError
from patchkit.releases import Release, Releases, Sdist, load_releases

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLE = re.compile(r'^\[release\."([^"]+)"\]\s*(?:#.*)?$')
_TORCH = re.compile(r"torch\s*==\s*([0-9][\w.]*)")


def new_table(name: str, sdists: Sequence[Sdist], like: Release, torch: str) -> str:
    """The text of a release's table. ``sdists`` stand newest first.

    Images are those of ``like`` under the new tag and without a digest: none is known
    until ``make pins`` asks a registry.
    """
    versions = ", ".join(f'"{sdist.version}"' for sdist in sdists)
    rows = [
        f'[release."{name}"]',
        f"versions = [{versions}]",
        f'directory = "patches/v{name}"',
        f'python = "{like.python}"',
        f'torch = "{torch}"',
    ]
    for sdist in sdists:
        rows += [
            "",
            f'[[release."{name}".sdist]]',
            f'version = "{sdist.version}"',
            f'file = "{sdist.file}"',
            f'sha256 = "{sdist.sha256}"',
        ]
    for image in like.image:
        rows += [
            "",
            f'[[release."{name}".image]]',
            f'name = "{image.name}"',
            f'tag = "v{sdists[0].version}"',
            f'package_root = "{image.package_root}"',
        ]
    return "\n".join(rows) + "\n"


def with_table(text: str, name: str, table: str) -> str:
    """The file's text with the table in the order of versions."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        match = _TABLE.match(line)
        if match and Version(match[1]) > Version(name):
            while number and lines[number - 1].startswith("#"):
                number -= 1  # noqa: PLW2901 (the comment belongs to that table)
            return "\n".join([*lines[:number], *table.split("\n"), *lines[number:]])
    return text.rstrip("\n") + "\n\n" + table


def with_versions(text: str, release: Release, sdists: Sequence[Sdist]) -> str:
    """The file's text with further versions of a release, newest first.

    Raises UsageError when the layout of the release's table is not understood.
    """
    all_sdists = sorted(
        [*release.sdist, *sdists], key=lambda each: Version(each.version), reverse=True
    )
    versions = ", ".join(f'"{sdist.version}"' for sdist in all_sdists)
    lines = text.split("\n")
    header = next(
        (n for n, line in enumerate(lines) if line == f'[release."{release.name}"]'),
        None,
    )
    row = next(
        (
            n
            for n in range(header or 0, len(lines))
            if lines[n].startswith("versions = [") and lines[n].rstrip().endswith("]")
        ),
        None,
    )
    first = next(
        (n for n, line in enumerate(lines) if line == _sdist_header(release.name)), None
    )
    if header is None or row is None or first is None:
        raise UsageError(
            f"releases.toml: the table of {release.name} is laid out in another way",
            hint=f"add by hand: versions = [{versions}], and the sdist tables",
        )
    lines[row] = f"versions = [{versions}]"
    rows = []
    for sdist in sdists:
        rows += [
            _sdist_header(release.name),
            f'version = "{sdist.version}"',
            f'file = "{sdist.file}"',
            f'sha256 = "{sdist.sha256}"',
            "",
        ]
    return "\n".join([*lines[:first], *rows, *lines[first:]])


def _sdist_header(name: str) -> str:
    return f'[[release."{name}".sdist]]'


def parsed(text: str, file: Path) -> Releases:
    """What ``releases.toml`` would be with ``text``; raises UsageError as it does."""
    with tempfile.TemporaryDirectory(prefix="vllm-patchkit-") as folder:
        trial = Path(folder) / "releases.toml"
        trial.write_text(text, encoding="utf-8")
        return load_releases(trial).model_copy(update={"file": file})


def torch_pin(pyproject: bytes) -> str:
    """The torch that an sdist pins for its build, "" when it pins none."""
    try:
        table = tomllib.loads(pyproject.decode("utf-8"))
        requires = table["build-system"]["requires"]
    except (ValueError, KeyError, TypeError):
        return ""
    matches = (_TORCH.match(each) for each in requires if isinstance(each, str))
    return next((match[1] for match in matches if match), "")
