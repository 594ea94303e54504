"""The types of a plan: which bytes each file will have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from patchkit.file_state import FileState
from patchkit.findings import Finding

PlanState = Literal["apply", "applied", "refused"]
Policy = Literal["exact", "context"]
# Where a line of an after-image comes from: a patch's name and the line in it.
Origin = tuple[str, int]


@dataclass(frozen=True)
class PlannedFile:
    """One path, before and after; None where there is no file.

    A rename is one path that vanishes and one that appears, ``moved_from`` the first:
    permissions and owner go with the file. ``patches`` names those that touch the
    path. ``origins`` has one entry a line of ``after``: who added it,
    or None for a line that stood there before.
    """

    path: str
    before: FileState | None
    after: FileState | None
    patches: tuple[str, ...] = ()
    origins: tuple[Origin | None, ...] = field(default=(), repr=False, compare=False)
    moved_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Plan:
    """What is to be done with a tree.

    ``apply``: ``files`` hold the bytes before and after; ``skipped`` names the
    patches that are not part of it, because they are there already (or, for a plan
    to revert, because they are not there). ``applied``: nothing to do, ``files`` are
    as found. ``refused``: ``findings`` say why, and there are no files.
    """

    state: PlanState
    files: tuple[PlannedFile, ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[PlannedFile, ...]:
        """The files whose bytes or mode change."""
        return tuple(file for file in self.files if file.before != file.after)
