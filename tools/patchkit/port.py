"""Carries a release's series to another release, commit by commit, with git."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit import releases as releases_module
from patchkit.clean_git import KIT_IDENTITY, CleanGit
from patchkit.commit import commit_to_tree
from patchkit.errors import OwnBug, Refused, UsageError
from patchkit.file_state import FileState
from patchkit.find_drift import drift_to_version, sound_series
from patchkit.hunk_fit import FIT_KINDS
from patchkit.index_versions import list_indexed, newest_sdist
from patchkit.ledger import read_ledger
from patchkit.patch_names import stem_of
from patchkit.plan_types import PlannedFile
from patchkit.port_state import (
    Outcome,
    Pick,
    PortState,
    end_state,
    read_state,
    write_state,
)
from patchkit.refresh import KnownPatch, Refresh, note_refresh, plan_refresh
from patchkit.release_table import new_table, parsed, torch_pin, with_table
from patchkit.releases import Release, Releases, Sdist
from patchkit.series import LEDGER, load_series
from patchkit.series_draft import read_draft
from patchkit.series_drift import SeriesDrift
from patchkit.source_store import CommitSource, open_store, source_ref, store_source
from patchkit.tree_commits import TreeCommit
from patchkit.work_tree import (
    WorkTree,
    commit_patches,
    default_target,
    make_work_tree,
    read_record,
)

_PORT_REF = "refs/patchkit/port"


@dataclass(frozen=True)
class PortResult:
    """Where a port stands. ``refresh`` is None while it waits for a person."""

    tree: Path
    state: PortState
    refresh: Refresh | None = None

    @property
    def stopped(self) -> Pick | None:
        """The patch whose conflicts wait in the tree."""
        return next((p for p in self.state.picks if p.outcome == "stopped"), None)


@dataclass(frozen=True)
class _Target:
    """The release to port to; ``table`` is its new text, "" when it has one."""

    releases: Releases
    release: Release
    version: str
    table: str


def port(
    releases: Releases,
    source: str,
    target: str,
    *,
    flavour: str = "capture",
    tree: Path | None = None,
    offline: bool = False,
    keep_going: bool = False,
) -> PortResult:
    """Carry ``source``'s series to ``target``, or go on with a port that stopped.

    Each patch that the target lacks is cherry-picked into its work tree: the ones
    that fit, moved or merged by git, become commits; one with conflicts stops the
    port, or is left out with ``keep_going``. At the end texts, series, ledger and the
    release's table are written, all or nothing. A stopped port has written nothing
    outside of the work tree.

    Raises Refused, UsageError and EnvironmentProblem as the steps do.
    """
    origin, _ = releases.find_version(source)
    aim = _find_target(releases, origin, target, offline=offline)
    if aim.release.name == origin.name:
        raise UsageError(f"{target} is of release {origin.name} itself")
    place = tree or default_target(aim.version, flavour)
    state = read_state(place) if place.is_dir() else None
    if state is None:
        work = make_work_tree(
            aim.release,
            place,
            version=aim.version,
            flavour=flavour,
            offline=offline,
            new_series=True,
        )
        state = _begin(aim, origin, flavour, work, offline=offline)
        write_state(place, state)
    elif (state.source, state.target) != (origin.name, aim.release.name):
        raise Refused(
            f"{place}: a port from {state.source} to {state.target} is under way",
            hint=f"end it: make port FROM={state.source} TO={state.target}; or remove "
            "the tree",
        )
    git = CleanGit(place)
    _settle_stopped(git, state)
    for pick in state.picks:
        if pick.outcome == "waiting":
            _try(git, state, pick, keep_going=keep_going)
            write_state(place, state)
            result = PortResult(place, state)
            if result.stopped is not None:
                return result
    return _finish(aim, origin, place, state, offline=offline)


def _find_target(
    releases: Releases, like: Release, wanted: str, *, offline: bool
) -> _Target:
    try:
        release, version = releases.find_version(wanted)
        return _Target(releases, release, version, "")
    except UsageError:
        if offline:
            raise
    indexed = list_indexed()
    newest = newest_sdist(wanted, indexed)
    text = wanted.strip().lower().removeprefix("v")
    versions = [
        each
        for each in indexed
        if each.release == newest.release and text in (each.release, str(each.version))
    ]
    sdists = [each.pin() for each in reversed(versions)]
    table = new_table(newest.release, sdists, like, _torch_of(sdists[0]) or like.torch)
    file = releases.file
    text = with_table(file.read_text(encoding="utf-8"), newest.release, table)
    grown = parsed(text, file)
    return _Target(grown, grown.release[newest.release], sdists[0].version, table)


def _torch_of(sdist: Sdist) -> str:
    commit = store_source(sdist)
    state = CommitSource(open_store(), commit, sdist.file).read("pyproject.toml")
    return torch_pin(state.data) if state else ""


def _begin(
    aim: _Target, origin: Release, flavour: str, work: WorkTree, *, offline: bool
) -> PortState:
    series = sound_series(load_series(origin, flavour))
    drift = drift_to_version(aim.releases, origin.name, aim.version, flavour, offline)
    sdist = origin.find_sdist(origin.versions[0])
    base = store_source(sdist, offline=offline)
    git = work.git
    ref = f"{source_ref(sdist)}:refs/patchkit/source"
    git.output("fetch", "-q", "--no-tags", str(open_store().folder), f"+{ref}")
    commits = commit_patches(git, base, series.patches)
    if commits:
        git.output("update-ref", _PORT_REF, commits[-1])
    git.output("update-ref", "-d", "refs/patchkit/source")
    there = {patch.stem for patch in read_draft(aim.release).patches}
    picks = [
        Pick(commit, fit.name, stem_of(fit.name), fit.subject, fit.kind)
        for commit, fit in zip(commits, drift.patches, strict=True)
        if stem_of(fit.name) not in there
    ]
    return PortState(
        origin.name,
        aim.release.name,
        aim.version,
        flavour,
        aim.table,
        _counts(drift, picks),
        picks,
    )


def _counts(drift: SeriesDrift, picks: list[Pick]) -> dict[str, int]:
    names = {pick.name for pick in picks}
    kinds = [
        hunk.kind
        for patch in drift.patches
        if patch.name in names
        for hunk in patch.hunks
    ]
    return {kind: kinds.count(kind) for kind in FIT_KINDS}


def _settle_stopped(git: CleanGit, state: PortState) -> None:
    """Take up what a person did with the patch that the port stopped at."""
    pick = next((each for each in state.picks if each.outcome == "stopped"), None)
    if pick is not None:
        if (git.folder / ".git" / "CHERRY_PICK_HEAD").exists():
            pick.outcome = _conclude(git, pick)
        elif git.text("rev-parse", "HEAD") != pick.head:
            # Without conflicts the run was killed once git had done its part.
            pick.outcome = "resolved" if pick.conflicts else _by_git(pick)
        else:
            pick.outcome = "left out" if pick.conflicts else "waiting"
        write_state(git.folder, state)
    dirty = git.output("status", "--porcelain", "-z").decode("utf-8", "replace")
    if dirty:
        raise Refused(
            f"{git.folder}: not committed: {dirty.split(chr(0))[0][3:]}",
            hint="commit it or put it away, then the same command again",
        )


def _by_git(pick: Pick) -> Outcome:
    fits: dict[str, Outcome] = {"exact": "exact", "moved": "moved"}
    return fits.get(pick.fit, "merged")


def _conclude(git: CleanGit, pick: Pick) -> Outcome:
    """End a cherry-pick whose conflicts a person resolved."""
    unmerged = _unmerged(git)
    if unmerged:
        raise Refused(
            f"{pick.name}: conflicts are left in {', '.join(unmerged)}",
            hint=f"resolve them in {git.folder}, git add, then the same command again",
        )
    edits = git.text("diff", "--name-only")
    if edits:
        raise Refused(
            f"{pick.name}: not added: {edits.split(chr(10))[0]}",
            hint=f"in {git.folder}: git add, then the same command again",
        )
    marks = git.answer("diff", "--cached", "--check", "HEAD")
    left = [
        line
        for line in marks.stdout.decode("utf-8", "replace").split("\n")
        if "leftover conflict marker" in line
    ]
    if left:
        raise Refused(
            f"{pick.name}: {left[0]}",
            hint=f"resolve it in {git.folder}, git add, then the same command again",
        )
    if git.answer("diff", "--cached", "--quiet", "HEAD").status == 0:
        git.output("cherry-pick", "--skip", env=KIT_IDENTITY)
        return "left out"
    git.output("cherry-pick", "--continue", env=KIT_IDENTITY)
    return "resolved"


def _unmerged(git: CleanGit) -> list[str]:
    names = git.output("diff", "--name-only", "--diff-filter=U", "-z")
    return names.decode("utf-8", "replace").split("\0")[:-1]


def _try(git: CleanGit, state: PortState, pick: Pick, *, keep_going: bool) -> None:
    pick.head = git.text("rev-parse", "HEAD")
    # Noted before, so that a kill in the middle is taken for what it is.
    pick.outcome = "stopped"
    write_state(git.folder, state)
    answer = git.answer("cherry-pick", pick.commit, env=KIT_IDENTITY)
    if answer.status == 0:
        pick.outcome = _by_git(pick)
        return
    pick.conflicts = _unmerged(git)
    if not (git.folder / ".git" / "CHERRY_PICK_HEAD").exists():
        raise git.failure(("cherry-pick",), answer)
    if not pick.conflicts:
        git.output("cherry-pick", "--skip", env=KIT_IDENTITY)
        pick.outcome = "upstream"
    elif keep_going:
        git.output("cherry-pick", "--abort")
        pick.outcome = "left out"


def _finish(
    aim: _Target, origin: Release, place: Path, state: PortState, *, offline: bool
) -> PortResult:
    """Write what the work tree has: texts, series, ledger, the release's table."""
    by_subject = {pick.subject: pick for pick in state.picks}

    def known(commit: TreeCommit) -> KnownPatch | None:
        pick = by_subject.get(commit.subject)
        return _known(pick, origin, aim) if pick else None

    tree = WorkTree(place, read_record(place), made=False)
    refresh = plan_refresh(aim.releases, tree, offline=offline, known=known)
    plan = refresh.plan
    if aim.table:
        text = aim.releases.file.read_text(encoding="utf-8")
        new = with_table(text, aim.release.name, aim.table)
        parsed(new, aim.releases.file)
        table = PlannedFile(
            aim.releases.file.name, FileState(text.encode()), FileState(new.encode())
        )
        plan = replace(plan, files=(*plan.files, table))
    if aim.releases.file.resolve().parent != releases_module.PROJECT.resolve():
        raise OwnBug("releases.toml lies outside of the project")
    commit_to_tree(plan, releases_module.PROJECT, remember=False)
    refresh = replace(refresh, plan=plan)
    note_refresh(refresh)
    end_state(place)
    return PortResult(place, state, refresh)


def _known(pick: Pick, origin: Release, aim: _Target) -> KnownPatch:
    """The name and the ledger of the patch it was, true for the new release."""
    file = (releases_module.PROJECT / pick.name).resolve()
    table: Mapping[str, str] = read_ledger(file.parent / LEDGER).get(file.name, {})
    ledger = {
        **table,
        "tested": f"Carried over from {origin.name}, {pick.outcome}: applies, compiles "
        f"and keeps upstream's rules on {aim.release.name}; not run there yet.",
    }
    return KnownPatch(pick.stem, ledger)
