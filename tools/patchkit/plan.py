"""Which bytes each file will have: the one answer every command shares.

A plan is worked out from parsed patches and from what a source holds; nothing is
written. See ``patchkit.series_state`` for how the state of a tree is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from patchkit import diagnose, drift
from patchkit.diff_model import Patch
from patchkit.file_state import Source, UnsafePath
from patchkit.findings import Finding
from patchkit.plan_types import Origin, Plan, PlannedFile, PlanState, Policy
from patchkit.series_state import find_standing, touched_paths, walk_back
from patchkit.virtual_tree import Entry, VirtualTree

__all__ = [
    "Origin",
    "Plan",
    "PlanState",
    "PlannedFile",
    "Policy",
    "make_plan",
    "make_revert_plan",
]


def make_plan(patches: Sequence[Patch], source: Source, *, policy: Policy) -> Plan:
    """Plan to put ``patches``, in order, on the files of ``source``.

    The first few may be there already; they end up in ``skipped``. With all of them
    there the state is "applied". Every hunk must stand at its declared line; policy
    "exact" also holds each file against the ids of its ``index`` line, "context"
    accepts (with a warning) a file that differs elsewhere.
    """
    tree = VirtualTree(source)
    standing = find_standing(patches, tree, policy)
    ahead = standing.ahead
    if standing.count is None or ahead is None or not ahead.fits:
        findings = diagnose.explain(patches, tree, policy, standing)
        return Plan("refused", findings=tuple(findings))
    count = standing.count
    if count == len(patches):
        misfits = standing.undone.misfits if standing.undone else []
        return _plan("applied", patches, tree, tree, drift.findings(misfits, tree))
    return _plan(
        "apply",
        patches[count:],
        tree,
        ahead.image,
        drift.findings(ahead.misfits, tree),
        skipped=patches[:count],
    )


def make_revert_plan(
    patches: Sequence[Patch], source: Source, *, policy: Policy
) -> Plan:
    """Plan to take ``patches``, or the first few that are there, off again.

    State "applied" means that none of them is there: nothing to revert. ``skipped``
    names those that are not there.
    """
    tree = VirtualTree(source)
    standing = find_standing(patches, tree, policy)
    if standing.count is None:
        findings = diagnose.explain_revert(patches, tree, policy, standing)
        return Plan("refused", findings=tuple(findings))
    count = standing.count
    if count == 0:
        return _plan("applied", patches, tree, tree, [])
    undone = walk_back(patches[:count], tree, policy)
    if not undone.fits:
        findings = diagnose.explain_revert(patches[:count], tree, policy, standing)
        return Plan("refused", findings=tuple(findings))
    return _plan(
        "apply",
        patches[:count],
        tree,
        undone.image,
        drift.findings(undone.misfits, tree),
        skipped=patches[count:],
    )


def _plan(
    state: PlanState,
    patches: Sequence[Patch],
    before: VirtualTree,
    after: VirtualTree,
    findings: Sequence[Finding],
    *,
    skipped: Sequence[Patch] = (),
) -> Plan:
    users: dict[str, dict[str, None]] = {path: {} for path in touched_paths(patches)}
    for patch in patches:
        for change in patch.files:
            for path in (change.old_path, change.new_path):
                # A copy's source is listed too: git needs it to apply the patch.
                if path is not None:
                    users.setdefault(path, {})[patch.name] = None
    files = tuple(
        _planned(path, before, after, tuple(names))
        for path, names in sorted(users.items())
    )
    return Plan(state, files, tuple(findings), tuple(patch.name for patch in skipped))


def _planned(
    path: str, before: VirtualTree, after: VirtualTree, names: tuple[str, ...]
) -> PlannedFile:
    new = _entry(after.read, path)
    old = _entry(before.found, path)
    return PlannedFile(
        path,
        old.state if old else None,
        new.state if new else None,
        names,
        new.origins if new else (),
        new.home if new and new.home != path else None,
    )


def _entry(read: Callable[[str], Entry | None], path: str) -> Entry | None:
    try:
        return read(path)
    except UnsafePath:
        return None
