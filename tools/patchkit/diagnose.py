"""Why a series cannot be put on, or taken off, a tree: every reason, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from patchkit import drift
from patchkit.diff_model import FileChange, Patch
from patchkit.findings import Finding
from patchkit.plan_types import Policy
from patchkit.reverse import reverse_change, reverse_patch
from patchkit.series_state import Standing, walk_back
from patchkit.step import Step, take_step
from patchkit.virtual_tree import VirtualTree

_WHOLE = "put the tree back as it was (a fresh copy), then run again"


def explain(
    patches: Sequence[Patch], tree: VirtualTree, policy: Policy, standing: Standing
) -> list[Finding]:
    """Return the findings for a series that cannot be put on.

    After the first patch that does not fit, those that follow are still checked
    where they touch other files, so that one run shows all there is to repair.
    """
    if standing.rivals:
        return [_ambiguous(patches, standing)]
    found = _forward(patches, tree, policy, standing)
    torn = any(row.startswith("before") for each in found for row in each.detail)
    if standing.count is None and not torn:
        # The same tree may be easier to explain as one that was changed afterwards.
        since = explain_revert(patches, tree, policy, standing)
        if len(since) < len(found) and {each.code for each in since} == {"T233"}:
            return since
    return found


def _forward(
    patches: Sequence[Patch], tree: VirtualTree, policy: Policy, standing: Standing
) -> list[Finding]:
    base = _base(patches, tree, policy, standing)
    findings: list[Finding] = []
    image = tree
    tainted: set[str] = set()
    lacks: Patch | None = None
    for patch in patches[base:]:
        step = take_step(patch, image, policy, tainted)
        if not step.fits:
            states = _states(patch, image, policy, tainted)
            findings += _one(patch, states, step, image, lacks)
            tainted |= step.failed
        if lacks is None or not findings:
            lacks = patch
        image = step.image
    return findings or [_undecided(patches)]


def explain_revert(
    patches: Sequence[Patch], tree: VirtualTree, policy: Policy, standing: Standing
) -> list[Finding]:
    """Return the findings for a series that cannot be taken off."""
    if standing.rivals:
        return [_ambiguous(patches, standing)]
    findings: list[Finding] = []
    image = tree
    tainted: set[str] = set()
    undone: Patch | None = None
    for patch in reversed(patches):
        states = _states(patch, image, policy, tainted)
        step = take_step(reverse_patch(patch), image, policy, tainted)
        if step.fits:
            image, undone = step.image, patch
        elif set(states.values()) == {"before"}:
            # It is not there, which is right unless a later one is.
            if undone is not None:
                findings.append(_out_of_order(undone, patch))
        else:
            if "before" in states.values():
                findings.append(_mixed(patch, states))
            fatal = [
                misfit
                for misfit in step.misfits
                if misfit.fatal and states.get(misfit.change.line) == "neither"
            ]
            findings += [_since(each) for each in drift.findings(fatal, image)]
            tainted |= step.failed
            image = step.image
    return findings or [_undecided(patches)]


def _base(
    patches: Sequence[Patch], tree: VirtualTree, policy: Policy, standing: Standing
) -> int:
    """From which patch on to look: all before it are surely there."""
    if standing.count is not None:
        return standing.count
    counts = standing.allowed or range(len(patches) + 1)
    for count in sorted(counts, reverse=True):
        if walk_back(patches[:count], tree, policy).fits:
            return count
    return 0


def _one(
    patch: Patch,
    states: dict[int, str],
    step: Step,
    image: VirtualTree,
    lacks: Patch | None,
) -> list[Finding]:
    """The findings for one patch; ``lacks`` is one before it that is not there."""
    found: list[Finding] = []
    kinds = set(states.values())
    if kinds == {"after"} and lacks is not None:
        found.append(_out_of_order(patch, lacks))
    elif "after" in kinds:
        found.append(_mixed(patch, states))
    fatal = [
        misfit
        for misfit in step.misfits
        if misfit.fatal and states.get(misfit.change.line) != "after"
    ]
    return found + drift.findings(fatal, image)


def _states(
    patch: Patch, image: VirtualTree, policy: Policy, tainted: set[str]
) -> dict[int, str]:
    """Before, after or neither, by the line of each section of the patch."""
    states = {}
    for change in patch.files:
        if change.old_path in tainted or change.new_path in tainted:
            continue
        if _fits(patch, change, image, policy):
            states[change.line] = "before"
        elif _fits(patch, reverse_change(change), image, policy):
            states[change.line] = "after"
        else:
            states[change.line] = "neither"
    return states


def _fits(patch: Patch, change: FileChange, image: VirtualTree, policy: Policy) -> bool:
    return take_step(replace(patch, files=(change,)), image, policy).fits


def _mixed(patch: Patch, states: dict[int, str]) -> Finding:
    paths = {change.line: change for change in patch.files}
    odd = [line for line, state in states.items() if state != "before"]
    return Finding(
        patch.name,
        odd[0],
        "T230",
        f"the patch is partly in the tree: {_count(states)}",
        hint=_WHOLE,
        detail=tuple(
            f"{state:8} {paths[line].path}" for line, state in sorted(states.items())
        ),
    )


def _count(states: dict[int, str]) -> str:
    kinds = list(states.values())
    parts = [
        f"{kinds.count(kind)} {words}"
        for kind, words in (
            ("before", "as before it"),
            ("after", "as after it"),
            ("neither", "as neither"),
        )
        if kind in kinds
    ]
    return ", ".join(parts)


def _out_of_order(patch: Patch, lacks: Patch) -> Finding:
    return Finding(
        patch.name,
        patch.files[0].line,
        "T231",
        f"the tree has this patch, and {lacks.name} before it is not there",
        hint=_WHOLE,
    )


def _since(finding: Finding) -> Finding:
    path, _, words = finding.message.partition(": ")
    return replace(
        finding,
        code="T233",
        message=f"{path}: changed since the patch was put on: {words}",
        hint="undo that change first; the patch is taken off byte by byte",
    )


def _ambiguous(patches: Sequence[Patch], standing: Standing) -> Finding:
    names = [
        f"after {patches[count - 1].name}" if count else "before the first patch"
        for count in standing.rivals
    ]
    patch = patches[min(standing.rivals[-1], len(patches)) - 1]
    return Finding(
        patch.name,
        patch.files[0].line,
        "T232",
        f"the tree may be in {len(names)} states, and no blob id tells which: "
        + ", ".join(names),
        hint="write it on this very tree with git diff --full-index --no-renames",
    )


def _undecided(patches: Sequence[Patch]) -> Finding:
    patch = patches[0]
    return Finding(
        patch.name,
        patch.files[0].line,
        "T230",
        "blob ids say that some files are before the patches and some after",
        hint=_WHOLE,
    )
