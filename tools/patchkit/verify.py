"""Judges patch files: by their form, on a tree, or a release's whole series."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.diff_model import Patch
from patchkit.errors import UsageError
from patchkit.findings import Finding, has_errors
from patchkit.parse import read_patch
from patchkit.plan_types import Plan, PlannedFile
from patchkit.report import count_line
from patchkit.text_checks import DEFAULT_WIDTH, check_text

if TYPE_CHECKING:
    from patchkit.releases import Release
    from patchkit.upstream import SdistSource


ASCEND = "ascend"


@dataclass
class Report:
    """What was judged, and how long it took, in seconds of wall time."""

    findings: list[Finding] = field(default_factory=list)
    patches: int = 0
    files: int = 0
    releases: list[str] = field(default_factory=list)
    patch_sets: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    git_seconds: float = 0.0

    def summary(self) -> dict[str, object]:
        """What ``report.render`` takes beside the findings."""
        share = 100 * self.git_seconds / self.seconds if self.seconds else 0
        line = (
            f"{self.patches} patches, {self.files} files: "
            f"{count_line(self.findings)}, in {self.seconds:.2f} s"
        )
        if self.git_seconds:
            line += f", of which git {self.git_seconds:.2f} s ({share:.0f} %)"
        notes = [f"note: {note}" for note in self.notes]
        sets = [f"{name}: {digest}" for name, digest in self.patch_sets.items()]
        return {
            "line": "\n".join([*notes, *sets, line]),
            "patches": self.patches,
            "files": self.files,
            "releases": self.releases,
            "patch_sets": self.patch_sets,
            "notes": self.notes,
            "seconds": round(self.seconds, 3),
            "git_seconds": round(self.git_seconds, 3),
        }


def verify_files(
    names: Sequence[str], *, tree: Path | None = None, width: int = DEFAULT_WIDTH
) -> Report:
    """Judge patch files by form and text and, with ``tree``, as a series on it.

    Raises UsageError for a file that cannot be read.
    """
    began = time.perf_counter()
    report = Report(patches=len(names))
    patches: list[Patch] = []
    for name in names:
        result = read_patch(Path(name), name)
        report.findings += result.findings
        if result.patch is not None:
            report.findings += check_text(result.patch, width)
            patches.append(result.patch)
    report.files = sum(len(patch.files) for patch in patches)
    if tree is not None and len(patches) == len(names):
        _judge_on_tree(patches, tree, report)
    report.seconds = time.perf_counter() - began
    return report


def _judge_on_tree(patches: list[Patch], tree: Path, report: Report) -> None:
    from patchkit.contradictions import check_together
    from patchkit.plan import make_plan
    from patchkit.python_checks import check_python
    from patchkit.tree_source import TreeSource

    source = TreeSource(tree)
    if contradictions := check_together(patches):
        report.findings += contradictions
        return
    plan = make_plan(patches, source, policy="context")
    report.findings += plan.findings
    if plan.state == "apply":
        # As in apply: a tree of any origin may hold .py files that are none.
        report.findings += [
            replace(found, severity="warning")
            for found in check_python(plan, feature_version=None, ruff_config=None)
        ]
        _ask_git(patches, plan, report)
    elif plan.state == "applied":
        report.notes.append(f"all of it is applied to {tree} already")


def _ask_git(patches: Sequence[Patch], plan: Plan, report: Report) -> None:
    from patchkit.git_engine import GitMissing, apply_with_git

    try:
        report.git_seconds += apply_with_git(patches, plan).seconds
    except GitMissing:
        note = "no git here: its second opinion was left out"
        if note not in report.notes:
            report.notes.append(note)


def verify_releases(
    names: Sequence[str],
    *,
    flavour: str | None = None,
    width: int = DEFAULT_WIDTH,
    offline: bool = False,
) -> Report:
    """Judge the series of releases against the pinned source of each version.

    ``flavour`` None means every flavour a release has. Each prefix of a series is
    judged by itself: it applies, compiles, and is as clean by upstream's ruff rules
    as the source was.
    """
    from patchkit.releases import load_releases

    began = time.perf_counter()
    report = Report()
    releases = load_releases()
    for name in names or releases.release:
        release = releases.find(name)
        if not release.flavours:
            raise UsageError(f"{release.directory}: no series file")
        for each in [flavour] if flavour else release.flavours:
            _judge_series(release, each, width, offline, report)
    if not names:
        from patchkit.text_table import count_texts

        report.notes.append(
            f"{len(report.releases)} series hold {report.patches} patches, "
            f"which are {count_texts(releases)} distinct texts"
        )
    report.seconds = time.perf_counter() - began
    return report


def _judge_series(
    release: Release, flavour: str, width: int, offline: bool, report: Report
) -> None:
    from patchkit.gpu_results import FLAVOUR, old_results
    from patchkit.series import load_series
    from patchkit.upstream import open_source

    series = load_series(release, flavour)
    if flavour == FLAVOUR:
        report.notes += old_results(release.name, series.digest)
    report.releases.append(f"{release.name} {flavour}")
    report.patch_sets[f"{release.name} {flavour}"] = series.digest
    report.patches += len(series.patches)
    report.files += len(series.paths)
    found = list(series.findings)
    for patch in series.patches:
        found += check_text(patch, width)
    report.findings += found
    if has_errors(found):
        return
    judged: set[tuple[str | None, ...]] = set()
    for version in release.versions:
        source = open_source(
            release, version=version, offline=offline, paths=series.paths
        )
        blobs = tuple(source.blob(path) for path in series.paths)
        if blobs in judged:
            report.notes.append(
                f"{version}: the same bytes as the version before it in every file "
                "the series touches"
            )
            continue
        judged.add(blobs)
        images = _judge_prefixes(series.patches, source, release, report)
        if flavour == ASCEND:
            _judge_contract(images, release, offline, report)


def _judge_contract(
    images: Sequence[PlannedFile],
    release: Release,
    offline: bool,
    report: Report,
) -> None:
    """Whether the torch_npu that belongs to a release has what the patches use."""
    from patchkit.check_contract import check_contract, patch_uses
    from patchkit.torch_npu_pins import load_torch_npu_pins
    from patchkit.wheel_contract import load_contract

    uses = patch_uses(images)
    wheels = load_torch_npu_pins().wheels_for(release)
    if uses and not wheels:
        path, line = uses[0].origin
        words = f"torch_npu.toml has none for release {release.name}"
        report.findings.append(Finding(path, line, "N604", words))
        return
    check = check_contract(
        uses, [load_contract(wheel, offline=offline) for wheel in wheels]
    )
    report.findings += check.findings
    report.notes.append(f"{release.name} ascend: {check}")


def _judge_prefixes(
    patches: tuple[Patch, ...], source: SdistSource, release: Release, report: Report
) -> list[PlannedFile]:
    """Plan each prefix; check every image of a file that one of them leaves.

    Returns the images, none where a prefix does not apply.
    """
    from patchkit.plan import make_plan
    from patchkit.python_checks import check_python

    rounds: list[dict[str, PlannedFile]] = []
    plan = Plan("applied")
    for count in range(1, len(patches) + 1):
        plan = make_plan(patches[:count], source, policy="exact")
        if plan.state != "apply":
            report.findings += plan.findings
            return []
        for file in plan.changes:
            images = [done.get(file.path) for done in rounds]
            if file in images:
                continue
            # Two images of one path cannot lie in one folder for ruff: next round.
            if None not in images:
                rounds.append({})
                images.append(None)
            rounds[images.index(None)][file.path] = file
    report.findings += plan.findings
    packages = {
        path.removesuffix("/__init__.py") for path in source.find_name("__init__.py")
    }
    for images_by_path in rounds:
        report.findings += check_python(
            Plan("apply", tuple(images_by_path.values())),
            feature_version=release.feature_version,
            ruff_config=source.ruff_config,
            packages=packages,
        )
    if plan.state == "apply":
        _ask_git(patches, plan, report)
    return [file for images in rounds for file in images.values()]
