"""A release's series as a git work tree: the pinned source, then one commit a patch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from patchkit import releases as releases_module
from patchkit.cache import disk_problems, whole_file
from patchkit.clean_git import KIT_IDENTITY, CleanGit, set_attributes
from patchkit.diff_model import Patch
from patchkit.drift import findings as misfit_findings
from patchkit.errors import OwnBug, Refused, UsageError
from patchkit.findings import Finding, has_errors
from patchkit.patch_header import message_of
from patchkit.releases import Release
from patchkit.report import as_text
from patchkit.series import load_series
from patchkit.series_file import SERIES_FILES, need_flavour, read_series_text
from patchkit.source_store import CommitSource, open_store, source_ref, store_source
from patchkit.step import take_step
from patchkit.step_progress import step_progress
from patchkit.virtual_tree import Entry, VirtualTree

BRANCH = "series"
PINNED = "refs/tags/pinned"
RECORD = "vllm-patchkit.json"
# Left by running a tree; no change of anybody's.
_EXCLUDE = "__pycache__/\n*.py[cod]\n.pytest_cache/\n.mypy_cache/\n.ruff_cache/\n"


@dataclass(frozen=True)
class PatchCommit:
    """A patch file and the commit made of it.

    ``entry`` is its line in ``series_file``; ``sha256`` that of the file's bytes.
    """

    commit: str
    series_file: str
    entry: str
    sha256: str


@dataclass(frozen=True)
class TreeRecord:
    """What a work tree was made of; kept in its ``.git``.

    ``base`` is the commit of the pinned source, ``head`` the last commit that the
    patch files have, ``files`` the SHA-256 of each series file, "" for an absent one.
    """

    release: str
    version: str
    flavour: str
    sdist: str
    base: str
    head: str
    patches: tuple[PatchCommit, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkTree:
    """A work tree and its record; ``made`` is False for one that was there."""

    path: Path
    record: TreeRecord
    made: bool

    @property
    def git(self) -> CleanGit:
        """git in this tree."""
        return CleanGit(self.path)


def make_work_tree(
    release: Release,
    target: Path,
    *,
    version: str | None = None,
    flavour: str = "capture",
    offline: bool = False,
    new_series: bool = False,
) -> WorkTree:
    """Make the work tree at ``target``, or find it there.

    A tree that has no work of its own and whose patch files changed since is made
    anew. With ``new_series`` a series file of the flavour that the release lacks is
    taken for an empty one.
    Raises Refused when ``target`` is anything else, when it holds work that the patch
    files lack, or when the series does not fit; EnvironmentProblem without source,
    git or disk.
    """
    wanted = series_record(release, version or release.versions[0], flavour)
    if os.path.lexists(target):
        record = read_record(target)
        if _same(record, wanted):
            return WorkTree(target, record, made=False)
        refuse_unsaved_work(target, record)
    there = _largest(release, flavour) if new_series else flavour
    patches = _sound_patches(release, there) if there else ()
    sdist = release.find_sdist(wanted.version)
    base = store_source(sdist, offline=offline)
    with (
        disk_problems(target),
        step_progress(f"making {target} with {len(patches)} commits"),
    ):
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            tree = work / "new"
            tree.mkdir()
            git = _new_repository(tree, source_ref(sdist), base)
            commits = commit_patches(git, base, patches)
            git.output("reset", "-q", "--hard", commits[-1] if commits else base)
            record = replace(
                wanted,
                base=base,
                head=commits[-1] if commits else base,
                patches=tuple(
                    replace(each, commit=commit)
                    for each, commit in zip(wanted.patches, commits, strict=True)
                ),
            )
            write_record(tree, record)
            _swap(tree, target, work / "old")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return WorkTree(target, record, made=True)


def open_work_tree(target: Path) -> WorkTree:
    """The work tree at ``target``.

    Raises UsageError when nothing is there, Refused for a folder that is no such tree.
    """
    if not target.is_dir():
        raise UsageError(
            f"{target}: there is no work tree", hint="make tree VERSION=… makes it"
        )
    return WorkTree(target, read_record(target), made=False)


def _largest(release: Release, flavour: str) -> str | None:
    """Of ``flavour`` and those that it builds on, the last that the release has."""
    wanted = SERIES_FILES[flavour]
    there = [
        name
        for name, files in SERIES_FILES.items()
        if files == wanted[: len(files)] and (release.path / files[-1]).is_file()
    ]
    return there[-1] if there else None


def series_record(release: Release, version: str, flavour: str) -> TreeRecord:
    """What the patch files say now; commits are still empty."""
    need_flavour(flavour)
    files: dict[str, str] = {}
    patches: list[PatchCommit] = []
    for name in SERIES_FILES[flavour]:
        file = release.path / name
        files[name] = file_sha256(file)
        for line in read_series_text(file).lines:
            digest = file_sha256(release.path / line.entry)
            patches.append(PatchCommit("", name, line.entry, digest))
    return TreeRecord(
        release.name,
        version,
        flavour,
        release.find_sdist(version).sha256,
        base="",
        head="",
        patches=tuple(patches),
        files=files,
    )


def file_sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, "" for one that is not there."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _same(record: TreeRecord, wanted: TreeRecord) -> bool:
    blank = tuple(replace(each, commit="") for each in record.patches)
    return replace(record, base="", head="", patches=blank) == wanted


def read_record(target: Path) -> TreeRecord:
    """The record of the work tree at ``target``; raises Refused without one."""
    try:
        data = json.loads((target / ".git" / RECORD).read_bytes())
        patches = tuple(PatchCommit(**each) for each in data.pop("patches"))
        return TreeRecord(**data, patches=patches)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise Refused(
            f"{target} is there, and is no work tree of this command",
            hint="remove it, or name another folder: OUT=…",
        ) from None


def write_record(target: Path, record: TreeRecord) -> None:
    """Put the record into the tree's ``.git``, in one step."""
    with whole_file(target / ".git" / RECORD) as partial:
        text = json.dumps(asdict(record), indent=2) + "\n"
        partial.write_text(text, encoding="utf-8")


def refuse_unsaved_work(target: Path, record: TreeRecord) -> None:
    """Raise Refused where the tree has commits or edits that patch files lack."""
    git = CleanGit(target)
    what = ""
    if git.text("rev-parse", "HEAD") != record.head:
        what = "commits"
    elif git.output("status", "--porcelain", "-z"):
        what = "edits"
    else:
        kept = {"refs/heads/" + BRANCH, PINNED, "refs/patchkit/port"}
        refs = git.text("for-each-ref", "--format=%(refname)").split("\n")
        if others := sorted(set(refs) - kept):
            what = f"work in {others[0]}"
    if what:
        raise Refused(
            f"{target} has {what} that its patch files do not have, and these changed "
            "meanwhile or are another release's",
            hint="remove it, or make a tree elsewhere (OUT=…) and cherry-pick there",
        )


def _sound_patches(release: Release, flavour: str) -> tuple[Patch, ...]:
    series = load_series(release, flavour)
    _refuse_errors(series.findings)
    return series.patches


def _refuse_errors(findings: Sequence[Finding]) -> None:
    if has_errors(list(findings)):
        errors = [found for found in findings if found.severity == "error"]
        raise Refused("\n".join(line for found in errors for line in as_text(found)))


def _new_repository(tree: Path, ref: str, base: str) -> CleanGit:
    git = CleanGit(tree)
    git.output("init", "-q", "--template=", ".")
    set_attributes(tree / ".git")
    (tree / ".git" / "info" / "exclude").write_text(_EXCLUDE, encoding="ascii")
    git.output("config", "core.autocrlf", "false")
    git.output("symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    git.output("fetch", "-q", "--no-tags", str(open_store().folder), f"{ref}:{PINNED}")
    git.output("reset", "-q", "--soft", base)
    return git


def commit_patches(
    git: CleanGit, base: str, patches: Sequence[Patch]
) -> tuple[str, ...]:
    """Make one commit a patch on top of ``base``; returns their ids, in order.

    The work tree and the branch stay as they are. Raises Refused when a patch does
    not fit exactly.
    """
    image = VirtualTree(CommitSource(git, base, "the pinned source"))
    parent, commits = base, []
    index = git.folder / ".git" / "patchkit-index"
    env = {"GIT_INDEX_FILE": str(index.resolve())}
    try:
        git.output("read-tree", base, env=env)
        for patch in patches:
            step = take_step(patch, image, "exact")
            if not step.fits:
                _refuse_errors(misfit_findings(step.misfits, image))
                raise OwnBug(f"{patch.name}: does not fit, and no finding says why")
            image = step.image
            tree = _write_tree(git, step.results, env)
            parent = git.text(
                "commit-tree", tree, "-p", parent, "-F", "-",
                stdin=message_of(patch.header), env=KIT_IDENTITY,
            )  # fmt: skip
            commits.append(parent)
    finally:
        index.unlink(missing_ok=True)
    return tuple(commits)


def _write_tree(
    git: CleanGit, results: Mapping[str, Entry | None], env: Mapping[str, str]
) -> str:
    for path, entry in results.items():
        if entry is None:
            git.output("update-index", "--force-remove", "--", path, env=env)
            continue
        blob = git.text("hash-object", "-w", "--stdin", stdin=entry.state.data)
        info = f"{entry.state.mode:o},{blob},{path}"
        git.output("update-index", "--add", "--cacheinfo", info, env=env)
    return git.text("write-tree", env=env)


def _swap(tree: Path, target: Path, old: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        target.rename(old)
    try:
        tree.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise


def default_target(version: str, flavour: str) -> Path:
    """Where ``make tree`` puts a tree when no folder is named."""
    return releases_module.PROJECT / "build" / f"vllm-{version}-{flavour}"
