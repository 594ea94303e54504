"""A whole patched source tree on disk, for reading, building and testing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.cache import disk_problems, whole_file
from patchkit.commit import commit_to_tree
from patchkit.diff_model import Patch
from patchkit.errors import OwnBug, Refused
from patchkit.extract import open_sdist
from patchkit.findings import Finding, has_errors
from patchkit.plan import make_plan
from patchkit.releases import Release
from patchkit.report import as_text
from patchkit.series import Series, load_series
from patchkit.step_progress import step_progress
from patchkit.tree_source import TreeSource
from patchkit.upstream import fetch_sdist

# Left by running and by keeping a tree under git; no change of anybody's.
_BY_PRODUCTS = frozenset({"__pycache__", ".git", ".pytest_cache", ".ruff_cache"})


@dataclass(frozen=True)
class TreeResult:
    """Where the tree is, and whether it was there already.

    ``patches`` is their number and ``digest`` the patch set's, "" without patches.
    """

    path: Path
    version: str
    patches: int
    digest: str
    made: bool


def make_tree(
    release: Release,
    target: Path,
    *,
    version: str | None = None,
    flavour: str = "capture",
    offline: bool = False,
    only: str = "",
    patched: bool = True,
) -> TreeResult:
    """Unpack the pinned sdist to ``target`` and apply the release's series.

    ``only`` keeps paths that begin with it. The tree appears under its name when it
    is whole. A record beside it tells a later call what it is: the same tree is left
    as it is, with what was edited in it if the series still stands there; another
    one, which nobody has edited, is made anew. Raises Refused when ``target`` is
    anything else or the series does not fit, EnvironmentProblem without source or
    disk.
    """
    sdist = release.find_sdist(version or release.versions[0])
    series = _sound_series(release, flavour) if patched else None
    patches = series.patches if series else ()
    digest = series.digest if series else ""
    recipe = {"sdist": sdist.sha256, "patches": digest, "only": only}
    made = not (os.path.lexists(target) and _is_there(target, recipe, patches))
    if made:
        archive = fetch_sdist(sdist, offline=offline)
        with (
            disk_problems(target),
            step_progress(f"unpacking {sdist.file} to {target}"),
        ):
            _make(archive, target, recipe, patches)
    return TreeResult(target, sdist.version, len(patches), digest, made)


def _sound_series(release: Release, flavour: str) -> Series:
    series = load_series(release, flavour)
    _refuse_errors(series.findings)
    return series


def _refuse_errors(findings: tuple[Finding, ...]) -> None:
    if has_errors(findings):
        errors = [found for found in findings if found.severity == "error"]
        raise Refused("\n".join(line for found in errors for line in as_text(found)))


def _is_there(target: Path, recipe: dict[str, str], patches: tuple[Patch, ...]) -> bool:
    """True: what is wanted is there. False: another tree, which may be replaced."""
    record = _read_record(target)
    if target.is_symlink() or not target.is_dir() or record is None:
        raise Refused(
            f"{target} is there, and was not made by this command",
            hint="remove it, or name another folder: OUT=…",
        )
    same: bool = record["recipe"] == recipe
    edited = record["fingerprint"] != _fingerprint(target)
    if not edited:
        return same
    if same and patches:
        plan = make_plan(patches, TreeSource(target), policy="context")
        if plan.state == "applied":
            return True
    raise Refused(
        f"{target} is there, and was edited after it was made",
        hint="remove it, or name another folder: OUT=…",
    )


def _record_file(target: Path) -> Path:
    return target.parent / f".{target.name}.tree.json"


def _read_record(target: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(_record_file(target).read_bytes())
        return {key: record[key] for key in ("recipe", "fingerprint")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _fingerprint(folder: Path) -> str:
    """A digest over every file's path, size, time of change and mode."""
    digest = hashlib.sha256()
    for path, info in sorted(_files(folder, ""), key=lambda entry: entry[0]):
        entry = [path, info.st_size, info.st_mtime_ns, info.st_mode]
        digest.update(json.dumps(entry).encode())
    return digest.hexdigest()


def _files(folder: Path, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in _BY_PRODUCTS:
                continue
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), f"{path}/")
            else:
                yield path, entry.stat(follow_symlinks=False)


def _make(
    archive: Path, target: Path, recipe: dict[str, str], patches: tuple[Patch, ...]
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        tree = work / "new"
        tree.mkdir()
        unpack_sdist(archive, tree, recipe["only"])
        if patches:
            _patch(tree, target, patches)
        # Before the renames: a tree without its record would be refused for good.
        with whole_file(_record_file(target)) as partial:
            record = {"recipe": recipe, "fingerprint": _fingerprint(tree)}
            partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        _swap(tree, target, work / "old")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _swap(tree: Path, target: Path, old: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        target.rename(old)
    try:
        tree.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise


def _patch(tree: Path, target: Path, patches: tuple[Patch, ...]) -> None:
    plan = make_plan(patches, TreeSource(tree), policy="exact")
    _refuse_errors(plan.findings)
    if plan.state != "apply":
        raise Refused(f"{target}: the pinned source has the series already")
    commit_to_tree(plan, tree)
    if make_plan(patches, TreeSource(tree), policy="exact").state != "applied":
        raise OwnBug(f"{target}: the series was written and is not there")


def unpack_sdist(archive: Path, folder: Path, only: str = "") -> None:
    """Unpack an sdist's regular files below its top folder. Links are left out.

    ``tarfile``'s own filters came with Python 3.11.4, and Debian 12 has 3.11.2.
    Raises EnvironmentProblem when ``archive`` is no sdist.
    """
    with open_sdist(archive) as members:
        for path, member, read in members:
            if not member.isfile() or not path.startswith(only):
                continue
            out = folder / path
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(read())
            out.chmod(0o755 if member.mode & 0o111 else 0o644)
