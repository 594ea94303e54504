"""What ``apply`` does, without arguments and printing: judge, then write or not."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from patchkit.bytecode import stale_bytecode
from patchkit.commit import commit_to_tree
from patchkit.contradictions import check_together
from patchkit.diff_model import Patch
from patchkit.errors import UsageError
from patchkit.findings import Finding, has_errors
from patchkit.git_engine import GitMissing, apply_with_git
from patchkit.parse import read_patch
from patchkit.plan import make_plan, make_revert_plan
from patchkit.plan_types import Plan, PlannedFile, Policy
from patchkit.python_checks import check_python
from patchkit.recovery import recover
from patchkit.series_state import touched_paths
from patchkit.text_checks import check_text
from patchkit.tree_source import TreeSource, check_root
from patchkit.wheel_record import plan_record

Action = Literal["apply", "check", "revert", "status"]
State = Literal[
    "applied", "already", "fits", "reverted", "untouched", "partly", "refused"
]


@dataclass(frozen=True)
class Request:
    """One call: a tree, and a release's series or patch files of any origin."""

    root: Path
    action: Action = "apply"
    version: str | None = None
    flavour: str = "capture"
    patches: tuple[str, ...] = ()
    policy: Policy | None = None


@dataclass
class Outcome:
    """What was found and done.

    States: ``applied`` and ``reverted`` (just now), ``already`` (all there),
    ``fits`` (check: would apply), ``untouched`` (none there), ``partly`` (the first
    few patches, ``standing``, are there), ``refused`` (see ``findings``).
    """

    state: State
    plan: Plan
    policy: Policy
    names: tuple[str, ...]
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    standing: tuple[str, ...] = ()
    digest: str | None = None
    removed: tuple[str, ...] = ()
    # Files written with the patches' own: a wheel's RECORD.
    beside: tuple[PlannedFile, ...] = ()
    # Status: how many of the patches that touch a path are there, and of how many.
    paths: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _Input:
    patches: tuple[Patch, ...]
    names: tuple[str, ...]
    findings: list[Finding]
    policy: Policy
    digest: str | None = None


def run(request: Request) -> Outcome:
    """Carry out one request.

    Raises KitError for what is no judgement on the patches; a refusal is an outcome.
    """
    notes: list[str] = []
    check_root(request.root)
    # Even a check begins by undoing a broken-off write, or it would judge its ruins.
    if found := recover(request.root):
        notes.append(str(found))
    source = TreeSource(request.root)
    given = _read(request)
    if request.version is not None:
        _check_is_vllm(request.root)
        notes += _version_note(request.root, request.version)
    if has_errors(given.findings):
        return _refused(given, given.findings, notes)
    if request.action == "revert":
        return _revert(request, given, source, notes)
    return _apply(request, given, source, notes)


def _apply(
    request: Request, given: _Input, source: TreeSource, notes: list[str]
) -> Outcome:
    """Apply, check and status: they differ only in what follows the plan."""
    plan = make_plan(given.patches, source, policy=given.policy)
    findings = [*given.findings, *plan.findings]
    if request.action == "status":
        return _status(given, plan, findings, notes)
    if plan.state == "refused":
        return _refused(given, findings, notes)
    outcome = Outcome(
        "already", plan, given.policy, given.names, findings, notes, digest=given.digest
    )
    outcome.standing = given.names if plan.state == "applied" else plan.skipped
    if plan.state == "applied":
        return outcome
    compiled = check_python(plan, feature_version=None, ruff_config=None)
    if request.version is None:
        # A tree of any origin may hold .py files that are none, templates say.
        compiled = [replace(found, severity="warning") for found in compiled]
    findings += compiled
    if has_errors(findings):
        return _refused(given, findings, notes)
    _ask_git(given.patches, plan, notes, reverse=False)
    outcome.state = "fits"
    if request.action == "apply":
        _commit(outcome, request.root, revert=False)
        outcome.state = "applied"
    return outcome


def _read(request: Request) -> _Input:
    if request.version is not None:
        from patchkit.releases import load_releases
        from patchkit.series import load_series

        release = load_releases().find(request.version)
        series = load_series(release, request.flavour)
        # Width and header rules are the verifier's; here they would only repeat.
        return _Input(
            series.patches,
            tuple(patch.name for patch in series.patches),
            [found for found in series.findings if found.severity == "error"],
            request.policy or "exact",
            series.digest,
        )
    if not request.patches:
        raise UsageError(
            "nothing to apply", hint="name patch files, or a release: --version 0.25"
        )
    findings: list[Finding] = []
    patches = []
    for name in request.patches:
        result = read_patch(Path(name), name)
        findings += result.findings
        if result.patch is not None:
            patches.append(result.patch)
            findings += [
                replace(found, severity="warning") for found in check_text(result.patch)
            ]
    findings += check_together(patches)
    return _Input(
        tuple(patches), request.patches, findings, request.policy or "context"
    )


def _revert(
    request: Request, given: _Input, source: TreeSource, notes: list[str]
) -> Outcome:
    plan = make_revert_plan(given.patches, source, policy=given.policy)
    findings = [*given.findings, *plan.findings]
    if plan.state == "refused":
        return _refused(given, findings, notes)
    outcome = Outcome(
        "untouched", plan, given.policy, given.names, findings, notes, (), given.digest
    )
    if plan.state == "apply":
        _ask_git(given.patches, plan, notes, reverse=True)
        _commit(outcome, request.root, revert=True)
        outcome.state = "reverted"
    return outcome


def _status(
    given: _Input, plan: Plan, findings: list[Finding], notes: list[str]
) -> Outcome:
    if plan.state == "refused":
        return _refused(given, findings, notes)
    state: State = "untouched"
    standing: tuple[str, ...] = ()
    if plan.state == "applied":
        state, standing = "already", given.names
    elif plan.skipped:
        state, standing = "partly", plan.skipped
    outcome = Outcome(
        state, plan, given.policy, given.names, findings, notes, standing, given.digest
    )
    for patch in given.patches:
        for path in touched_paths([patch]):
            there, total = outcome.paths.get(path, (0, 0))
            outcome.paths[path] = (there + (patch.name in standing), total + 1)
    return outcome


def _refused(given: _Input, findings: list[Finding], notes: list[str]) -> Outcome:
    return Outcome(
        "refused",
        Plan("refused", findings=tuple(findings)),
        given.policy,
        given.names,
        findings,
        notes,
        digest=given.digest,
    )


def _ask_git(
    patches: Sequence[Patch], plan: Plan, notes: list[str], *, reverse: bool
) -> None:
    try:
        apply_with_git(patches, plan, reverse=reverse)
    except GitMissing:
        notes.append("no git here: its second opinion was left out")


def _commit(outcome: Outcome, root: Path, *, revert: bool) -> None:
    plan = outcome.plan
    record = plan_record(plan.changes, root, revert=revert)
    whole = replace(plan, files=(*plan.files, *record.files))
    stale = stale_bytecode(plan.changes, root)
    done = commit_to_tree(whole, root, stale=stale, remember=not revert)
    outcome.removed = done.removed
    outcome.beside = record.files
    outcome.notes += record.notes


def _check_is_vllm(root: Path) -> None:
    """A root that is no vLLM tree is a mistyped path, not drift."""
    # os.path: pathlib raises where a folder may not be searched.
    if os.path.isfile(root / "vllm" / "__init__.py"):  # noqa: PTH113
        return
    if root.name == "vllm" and os.path.isfile(root / "__init__.py"):  # noqa: PTH113
        raise UsageError(
            f"{root} is the package itself",
            hint=f"give its parent: --root {root.parent}",
        )
    raise UsageError(
        f"{root} holds no vllm/__init__.py",
        hint="give a source tree's top, or the site-packages folder vLLM is in",
    )


def tree_version(root: Path) -> str | None:
    """The version that a vLLM tree states, or None where it states none.

    Looked for in an installed distribution's folder name, then in an sdist's
    PKG-INFO, then in ``vllm/_version.py``.
    """
    for folder in sorted(root.glob("vllm-*.dist-info")):
        return folder.name.removesuffix(".dist-info").rpartition("-")[2]
    for file, pattern in (
        (root / "PKG-INFO", r"^Version: (\S+)$"),
        (root / "vllm" / "_version.py", r"^__version__ = .*['\"]([^'\"]+)['\"]"),
    ):
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        if match := re.search(pattern, text, re.MULTILINE):
            return match[1]
    return None


def _version_note(root: Path, version: str) -> list[str]:
    """The blob ids decide; a version that differs explains what they say."""
    from patchkit.releases import load_releases

    release = load_releases().find(version)
    found = tree_version(root)
    if found is None or found.partition("+")[0] in release.versions:
        return []
    return [
        f"the tree says it is vLLM {found}; release {release.name} is for "
        f"{' and '.join(sorted(release.versions))}"
    ]
