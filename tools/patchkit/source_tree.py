"""A whole patched source tree on disk, for reading, building and testing."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.cache import disk_problems
from patchkit.commit import commit_to_tree
from patchkit.diff_model import Patch
from patchkit.errors import EnvironmentProblem, OwnBug, Refused
from patchkit.findings import has_errors
from patchkit.plan import make_plan
from patchkit.releases import Release
from patchkit.report import as_text
from patchkit.series import load_series
from patchkit.step_progress import step_progress
from patchkit.tree_source import TreeSource
from patchkit.upstream import fetch_sdist, member_path


@dataclass(frozen=True)
class TreeResult:
    """Where the tree is, and whether it was there already."""

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
) -> TreeResult:
    """Unpack the pinned sdist to ``target`` and apply the release's series.

    ``only`` keeps paths that begin with it. A folder that has the series already is
    left as it is. The tree appears under its name when it is whole. Raises Refused
    when ``target`` is something else or the series does not fit, EnvironmentProblem
    without source or disk.
    """
    sdist = release.find_sdist(version or release.versions[0])
    series = load_series(release, flavour)
    if has_errors(series.findings):
        first = next(found for found in series.findings if found.severity == "error")
        raise Refused("\n".join(as_text(first)))
    made = not target.exists()
    if made:
        archive = fetch_sdist(sdist, offline=offline)
        with (
            step_progress(f"unpacking {sdist.file} to {target}"),
            disk_problems(target),
        ):
            _unpack(archive, target, only, series.patches)
    elif (
        make_plan(series.patches, TreeSource(target), policy="exact").state != "applied"
    ):
        raise Refused(
            f"{target} is there, and is not {release.name} with this series",
            hint="remove it, or name another folder: OUT=…",
        )
    return TreeResult(target, sdist.version, len(series.patches), series.digest, made)


def _unpack(archive: Path, target: Path, only: str, patches: Sequence[Patch]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        try:
            unpack_sdist(archive, partial, only)
        except (tarfile.TarError, EOFError) as error:
            raise EnvironmentProblem(f"{archive}: no sdist: {error}") from None
        plan = make_plan(patches, TreeSource(partial), policy="exact")
        if plan.state != "apply":
            raise Refused("\n".join(line for f in plan.findings for line in as_text(f)))
        commit_to_tree(plan, partial)
        if make_plan(patches, TreeSource(partial), policy="exact").state != "applied":
            raise OwnBug(f"{target}: the series was written and is not there")
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def unpack_sdist(archive: Path, folder: Path, only: str = "") -> None:
    """Unpack an sdist's regular files below its top folder. Links are left out.

    ``tarfile``'s own filters came with Python 3.11.4, and Debian 12 has 3.11.2.
    """
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            path = member_path(member)
            if path is None or not path.startswith(only):
                continue
            file = tar.extractfile(member)
            if file is None:
                continue
            out = folder / path
            out.parent.mkdir(parents=True, exist_ok=True)
            with out.open("wb") as written:
                shutil.copyfileobj(file, written)
            out.chmod(0o755 if member.mode & 0o111 else 0o644)
