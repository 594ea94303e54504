"""Which patch files are meant: names and globs, a line each, below one folder."""

from __future__ import annotations

from pathlib import Path, PurePath

from patchkit.errors import UsageError

_WILD = frozenset("*?[")


def find_patches(folder: Path, wanted: str) -> list[str]:
    """Names relative to ``folder``: in the order of the lines, sorted within each.

    A line is the name of a file, taken as it is, or else a glob, in which ``**`` is
    any number of folders. Links to folders are not followed, and ``.git`` is left out.

    Raises UsageError for a name that is no file, for what lies elsewhere, and when
    there is no patch at all.
    """
    found: dict[str, None] = {}
    lines = [line.strip() for line in wanted.split("\n") if line.strip()]
    for line in lines:
        pattern = _inside(folder, line)
        if (folder / pattern).is_file():
            found[pattern] = None
        elif _WILD.isdisjoint(pattern):
            raise UsageError(
                f"patches: {line}: no such file",
                hint=f"for a folder: {line.rstrip('/')}/**/*.patch",
            )
        else:
            found |= dict.fromkeys(_matches(folder, pattern, line))
    if not found:
        raise UsageError(
            f"patches: no file matches {' or '.join(lines) or 'an empty list'}",
            hint="a name or a glob a line; is the repository checked out?",
        )
    return list(found)


def _inside(folder: Path, line: str) -> str:
    path = PurePath(line)
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(
            f"patches: {line} lies outside of {folder}: no line of it could be shown"
        )
    return str(path)


def _matches(folder: Path, pattern: str, line: str) -> list[str]:
    try:
        files = [path for path in folder.glob(pattern) if path.is_file()]
    except ValueError as error:
        raise UsageError(f"patches: {line}: {error}") from None
    names = [path.relative_to(folder) for path in files]
    return sorted(str(name) for name in names if ".git" not in name.parts)
