"""Which of the lines that a series adds are run by tests, measured from the diffs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from patchkit.plan_types import Origin, Plan

Lines = tuple[frozenset[int], frozenset[int]]


@dataclass(frozen=True)
class FileCoverage:
    """Of one file: how many added lines are executable, how many ran, which did not.

    ``missing`` names each as a line of its patch and a line of the patched file.
    """

    path: str
    added: int
    executable: int
    missing: tuple[tuple[Origin, int], ...]


def measure(
    plan: Plan, lines: Mapping[str, Lines], patches: Collection[str] | None = None
) -> list[FileCoverage]:
    """Compare added lines with those that ran, for every Python file of ``plan``.

    ``patches`` names those whose lines count; a file without one is left out. None:
    all of them. ``lines`` holds the executable lines by path: those that ran, and those
    that did not. A file that is not in it was never imported: every added line counts
    as executable and missing. So does a line that is told not to be measured.
    """
    result = []
    for file in plan.changes:
        if not file.path.endswith(".py") or file.after is None:
            continue
        added = {
            number: origin
            for number, origin in enumerate(file.origins, 1)
            if origin is not None and (patches is None or origin[0] in patches)
        }
        if patches is not None and not added:
            continue
        ran, missed = lines.get(file.path, (frozenset(), frozenset(added)))
        text = file.after.data.split(b"\n")
        missed |= {number for number in added if b"pragma: no" in text[number - 1]}
        result.append(
            FileCoverage(
                file.path,
                len(added),
                len(added.keys() & (ran | missed)),
                tuple((added[n], n) for n in sorted(added.keys() & missed)),
            )
        )
    return result
