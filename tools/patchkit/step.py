"""One patch over one image: the next image, or what does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from patchkit.blob import is_null
from patchkit.diff_model import FileChange, Hunk, Patch
from patchkit.errors import OwnBug
from patchkit.file_state import REGULAR, FileState, UnsafePath
from patchkit.plan_types import Policy
from patchkit.virtual_tree import Entry, Origins, VirtualTree

CONTEXT_LINES = 3

MisfitKind = Literal[
    "missing",  # there is no file to change
    "exists",  # there is a file where one is to be created
    "unsafe",  # the path passes a link, a folder, a device
    "mode",  # the executable bit is not the stated one
    "hunk",  # the old lines do not stand at the declared line
    "not-at-end",  # a hunk without trailing context, and the file goes on
    "leftover",  # a file to delete holds more than the diff removes
    "old-id",  # the file before is not the one the index line names
    "new-id",  # the file after is not the one the index line promises
    "no-id",  # policy exact, and no index line to hold the file against
    "short-context",  # fewer lines of context than git diff writes
]


@dataclass(frozen=True)
class Misfit:
    """Something in which a patch and an image differ.

    ``entry`` is the file in question, ``hunk`` the hunk, ``fatal`` False where the
    patch can go on. ``wanted`` is the file a section would have created.
    """

    kind: MisfitKind
    patch: Patch
    change: FileChange
    path: str
    fatal: bool = True
    hunk: Hunk | None = None
    entry: Entry | None = None
    wanted: FileState | None = None
    error: UnsafePath | None = None


@dataclass
class Step:
    """What came of one patch: the image after it, if nothing fatal came up."""

    image: VirtualTree
    misfits: list[Misfit] = field(default_factory=list)
    results: dict[str, Entry | None] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether the image is that after the patch."""
        return not any(misfit.fatal for misfit in self.misfits)

    @property
    def failed(self) -> set[str]:
        """The paths of sections that do not fit."""
        return {
            path
            for misfit in self.misfits
            if misfit.fatal
            for path in (misfit.change.old_path, misfit.change.new_path)
            if path is not None
        }


def take_step(
    patch: Patch, image: VirtualTree, policy: Policy, tainted: Iterable[str] = ()
) -> Step:
    """Put ``patch`` over ``image``, every hunk at its declared line.

    As in git, a rename or a copy reads the file as it stood before the patch, every
    other section what the sections before it left. Sections that touch a path in
    ``tainted`` (whose true bytes are unknown after an earlier misfit) are left out.
    """
    walk = _Walk(patch, image, policy)
    skip = set(tainted)
    for change in patch.files:
        if change.old_path in skip or change.new_path in skip:
            continue
        try:
            walk.section(change)
        except _Stop as stop:
            walk.step.misfits.append(stop.misfit)
    results: dict[str, Entry | None] = dict.fromkeys(walk.gone)
    results.update(walk.made)
    walk.step.results = results
    walk.step.image = image.with_results(results)
    return walk.step


class _Stop(Exception):
    def __init__(self, misfit: Misfit) -> None:
        super().__init__(misfit.kind)
        self.misfit = misfit


class _Walk:
    def __init__(self, patch: Patch, image: VirtualTree, policy: Policy) -> None:
        self.patch, self.image, self.policy = patch, image, policy
        self.step = Step(image)
        self.made: dict[str, Entry] = {}
        self.gone: dict[str, None] = {}
        self.to_go = {
            change.old_path
            for change in patch.files
            if change.kind in ("delete", "rename") and change.old_path is not None
        }

    def section(self, change: FileChange) -> None:
        before = self._before(change)
        if change.kind == "copy" and change.new_path is None:
            self._check_mode(change, before, strict=True)
            self._check_old_id(change, before)
            self._drop(change)
            return
        after = self._after(change, before)
        if change.new_path is None:
            if after.lines:
                self._stop("leftover", change, entry=before, hunk=_last(change))
            self._drop(change)
            return
        if change.new_path != change.old_path:
            self._check_free(change, after.state)
        if change.kind == "rename" and change.old_path is not None:
            # What another section made of that name stays: two files may trade names.
            self.gone[change.old_path] = None
        self.made[change.new_path] = after

    def _stop(
        self,
        kind: MisfitKind,
        change: FileChange,
        *,
        hunk: Hunk | None = None,
        entry: Entry | None = None,
        wanted: FileState | None = None,
        error: UnsafePath | None = None,
        path: str | None = None,
    ) -> None:
        where = path or change.old_path or change.path
        raise _Stop(
            Misfit(
                kind,
                self.patch,
                change,
                where,
                hunk=hunk,
                entry=entry,
                wanted=wanted,
                error=error,
            )
        )

    def _warn(
        self,
        kind: MisfitKind,
        change: FileChange,
        entry: Entry | None,
        hunk: Hunk | None = None,
    ) -> None:
        self.step.misfits.append(
            Misfit(
                kind,
                self.patch,
                change,
                change.path,
                fatal=False,
                entry=entry,
                hunk=hunk,
            )
        )

    def _drop(self, change: FileChange) -> None:
        assert change.old_path is not None
        self.gone[change.old_path] = None
        self.made.pop(change.old_path, None)

    def _read(self, change: FileChange, path: str) -> Entry | None:
        try:
            return self.image.read(path)
        except UnsafePath as error:
            self._stop("unsafe", change, error=error, path=path)
            raise AssertionError from error

    def _before(self, change: FileChange) -> Entry | None:
        if change.old_path is None:
            return None
        if change.kind not in ("rename", "copy"):
            if change.old_path in self.made:
                return self.made[change.old_path]
            if change.old_path in self.gone:
                self._stop("missing", change)
        entry = self._read(change, change.old_path)
        if entry is None:
            self._stop("missing", change)
        return entry

    def _check_free(self, change: FileChange, wanted: FileState) -> None:
        path = change.new_path
        assert path is not None
        if path in self.made:
            self._stop("exists", change, entry=self.made[path], path=path)
        there = self._read(change, path)
        if there is not None and path not in self.to_go:
            self._stop("exists", change, entry=there, wanted=wanted, path=path)

    def _after(self, change: FileChange, before: Entry | None) -> Entry:
        """The file with the hunks in it; raises _Stop where one does not fit."""
        mode = self._check_mode(change, before, strict=change.kind == "delete")
        lines = before.lines if before else ()
        origins = before.origins if before else ()
        bad = [hunk for hunk in change.hunks if not _stands(hunk, lines)]
        places = [place(hunk) for hunk in change.hunks]
        if any(begin < done for (_, done), (begin, _) in pairwise(places)):
            # Such a diff does not pass the parser; bytes must not depend on that.
            raise OwnBug(f"{self.patch.name}: hunks of {change.path} overlap")
        for hunk in bad:
            self.step.misfits.append(
                Misfit(
                    "hunk",
                    self.patch,
                    change,
                    change.old_path or change.path,
                    hunk=hunk,
                    entry=before,
                )
            )
        if bad:
            raise _Stop(self.step.misfits.pop())
        if change.kind != "delete":
            self._check_ends(change, before, lines)
        home = before.home if before else None
        if change.kind == "rename":
            home = home or change.old_path
        if not change.hunks and before is not None:
            after = Entry(FileState(before.state.data, mode), lines, origins, home)
        else:
            new_lines, new_origins = _splice(change, lines, origins, self.patch.name)
            data = b"".join(new_lines)
            after = Entry(FileState(data, mode), new_lines, new_origins, home)
        true_before = self._check_old_id(change, before)
        self._check_new_id(change, after, before, true_before)
        return after

    def _check_mode(
        self, change: FileChange, before: Entry | None, *, strict: bool
    ) -> int:
        if before is None:
            return change.new_mode or REGULAR
        stated = change.old_mode or change.new_mode
        changes = None not in (change.old_mode, change.new_mode) and (
            change.old_mode != change.new_mode
        )
        if stated is not None and before.state.mode != stated:
            if changes or strict or self.policy == "exact":
                self._stop("mode", change, entry=before)
            # Git warns as well, and leaves the bit as it is.
            self._warn("mode", change, before)
        if changes:
            assert change.new_mode is not None
            return change.new_mode
        return before.state.mode

    def _check_ends(
        self, change: FileChange, before: Entry | None, lines: tuple[bytes, ...]
    ) -> None:
        short = None
        for hunk in change.hunks:
            begin, end = place(hunk)
            leading, trailing = _context(hunk)
            if end < len(lines):
                unended = hunk.new_lines and not hunk.new_lines[-1].endswith(b"\n")
                if not trailing or unended:
                    self._stop("not-at-end", change, hunk=hunk, entry=before)
                if trailing < CONTEXT_LINES:
                    short = short or hunk
            if begin > 0 and leading < CONTEXT_LINES:
                short = short or hunk
        if short is not None:
            self._warn("short-context", change, before, short)

    def _check_old_id(self, change: FileChange, before: Entry | None) -> bool | None:
        """True: the very file. False: another (a warning). None: no id to tell by."""
        if before is None:
            return None
        stated = change.old_blob
        if stated is None or is_null(stated):
            if self.policy == "exact" and change.hunks:
                self._stop("no-id", change, entry=before)
            return None
        if before.has_id(stated):
            return True
        if self.policy == "exact":
            self._stop("old-id", change, entry=before)
        self._warn("old-id", change, before)
        return False

    def _check_new_id(
        self,
        change: FileChange,
        after: Entry,
        before: Entry | None,
        true_before: bool | None,
    ) -> None:
        stated = change.new_blob
        if change.new_path is None or true_before is False:
            return
        if stated is None or is_null(stated):
            if self.policy == "exact" and before is None:
                self._stop("no-id", change, path=change.new_path)
            return
        if after.has_id(stated):
            return
        if self.policy == "exact":
            self._stop("new-id", change, entry=after)
        # Policy context goes by the text, as git does: an edited index line is told.
        self._warn("new-id", change, after)


def place(hunk: Hunk) -> tuple[int, int]:
    """Begin and end of the old side, counted from 0; an empty one is after its line."""
    count = len(hunk.old_lines)
    begin = hunk.old_start - 1 if count else hunk.old_start
    return begin, begin + count


def _stands(hunk: Hunk, lines: tuple[bytes, ...]) -> bool:
    begin, end = place(hunk)
    return begin >= 0 and end <= len(lines) and lines[begin:end] == hunk.old_lines


def _context(hunk: Hunk) -> tuple[int, int]:
    """How many lines of context come before the first change and after the last."""
    kinds = [line.kind for line in hunk.lines]
    changed = [number for number, kind in enumerate(kinds) if kind != " "]
    if not changed:
        return len(kinds), len(kinds)
    return changed[0], len(kinds) - 1 - changed[-1]


def _last(change: FileChange) -> Hunk | None:
    return change.hunks[-1] if change.hunks else None


def _splice(
    change: FileChange, lines: tuple[bytes, ...], origins: Origins, name: str
) -> tuple[tuple[bytes, ...], Origins]:
    new_lines: list[bytes] = []
    new_origins: list[tuple[str, int] | None] = []
    done = 0
    for hunk in change.hunks:
        position, end = place(hunk)
        new_lines += lines[done:position]
        new_origins += origins[done:position]
        for line in hunk.lines:
            if line.kind == "+":
                new_lines.append(line.data)
                new_origins.append((name, line.line))
                continue
            if line.kind == " ":
                new_lines.append(lines[position])
                new_origins.append(origins[position])
            position += 1
        done = end
    new_lines += lines[done:]
    new_origins += origins[done:]
    return tuple(new_lines), tuple(new_origins)
