"""How each hunk of a release's series fits another source, and what moved it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from patchkit.clean_git import CleanGit
from patchkit.diff_model import FileChange, Hunk, Patch
from patchkit.errors import Refused
from patchkit.file_state import FileState
from patchkit.hunk_fit import FIT_KINDS, FitKind, Placed, fit_hunk, with_hunks
from patchkit.line_changes import LineChanges, line_changes
from patchkit.source_store import CommitSource, find_renames
from patchkit.step import place, take_step
from patchkit.three_way import ThreeWay, three_way
from patchkit.virtual_tree import VirtualTree, split_lines

_SHOWN_BEYOND = 8


@dataclass(frozen=True)
class UpstreamChange:
    """One change between the two pinned sources: lines from 1, and their bytes."""

    path: str
    from_line: int
    removed: tuple[bytes, ...]
    to_line: int
    added: tuple[bytes, ...]


@dataclass(frozen=True)
class HunkFit:
    """One hunk, or one file section without hunks, against the other source.

    ``line`` is the patch file's. ``path`` is the file in the source the series is
    for, ``to_path`` in the other one. ``inner`` says of a renamed file how the hunk
    fits it. ``expected`` and ``found`` are the lines on both sides, ``causes`` the
    changes between the pinned sources that touch the hunk's lines; ``rests_on`` names
    an earlier patch whose lines it needs and which does not fit itself.
    """

    path: str
    line: int
    kind: FitKind
    offset: int = 0
    to_path: str | None = None
    inner: FitKind | None = None
    note: str = ""
    hunk: Hunk | None = field(default=None, repr=False)
    expected: tuple[int, tuple[bytes, ...]] = (0, ())
    found: tuple[int, tuple[bytes, ...]] = (0, ())
    causes: tuple[UpstreamChange, ...] = ()
    rests_on: str = ""

    @property
    def merges(self) -> bool:
        """Whether git can put it there without a person."""
        kind = self.inner or self.kind
        return kind in ("exact", "moved", "merged", "upstream")


@dataclass(frozen=True)
class PatchFit:
    """One patch of the series. ``as_it_is``: the very text applies, ids and all."""

    name: str
    subject: str
    hunks: tuple[HunkFit, ...]
    as_it_is: bool

    @property
    def kind(self) -> FitKind:
        """The fit of the hunk that needs most."""
        kinds = [hunk.kind for hunk in self.hunks] or ["exact"]
        return max(kinds, key=FIT_KINDS.index)


@dataclass(frozen=True)
class SeriesDrift:
    """A series against another source."""

    source: str
    target: str
    patches: tuple[PatchFit, ...]

    @cached_property
    def counts(self) -> dict[FitKind, int]:
        """How many hunks fit in each way, every way listed."""
        kinds = [hunk.kind for patch in self.patches for hunk in patch.hunks]
        return {kind: kinds.count(kind) for kind in FIT_KINDS}


def find_drift(
    patches: Sequence[Patch], git: CleanGit, source: CommitSource, target: CommitSource
) -> SeriesDrift:
    """Hold a series, which fits ``source`` exactly, against ``target``.

    Both are trees of the repository ``git``. Raises Refused when the series does not
    fit its own source.
    """
    with three_way(git) as merger:
        walk = _Walk(merger, git, source, target)
        return SeriesDrift(
            source.label, target.label, tuple(walk.judge(each) for each in patches)
        )


class _Walk:
    """The two trees side by side, after the patches so far."""

    def __init__(
        self,
        merger: ThreeWay,
        git: CleanGit,
        source: CommitSource,
        target: CommitSource,
    ) -> None:
        self.merger = merger
        self.git = git
        self.source = source
        self.target = target
        self.here = VirtualTree(source)
        self.there: dict[str, bytes | None] = {}
        self.as_is = VirtualTree(target)
        self.failed: dict[str, str] = {}
        self.changes: dict[tuple[str, str], LineChanges] = {}

    @cached_property
    def renames(self) -> Mapping[str, str]:
        return find_renames(self.git, self.source.commit, self.target.commit)

    def judge(self, patch: Patch) -> PatchFit:
        step = take_step(patch, self.here, "exact")
        if not step.fits:
            raise Refused(
                f"{patch.name} does not fit {self.source.label}, the source it is for",
                hint="make verify says why",
            )
        hunks = [fit for change in patch.files for fit in self._change(patch, change)]
        taken = take_step(patch, self.as_is, "exact")
        if taken.fits:
            self.as_is = taken.image
        self.here = step.image
        subject = patch.header.partition(b"\n")[0].removeprefix(b"Subject: ")
        return PatchFit(
            patch.name, subject.decode("utf-8", "replace"), tuple(hunks), taken.fits
        )

    def _change(self, patch: Patch, change: FileChange) -> list[HunkFit]:
        if change.kind == "create":
            return [self._created(change)]
        assert change.old_path is not None
        path, to_path = change.old_path, self._target_path(change.old_path)
        base = self._here(path)
        if to_path is None:
            return self._gone(change, patch)
        ours = self._there(to_path)
        assert ours is not None
        fits = self._hunks(patch, change, to_path, base, ours)
        if not change.hunks:
            fits = [self._whole(change, to_path, base == ours)]
        self._carry(change, to_path, base, ours, fits)
        return fits

    def _here(self, path: str) -> bytes:
        entry = self.here.read(path)
        assert entry is not None
        return entry.state.data

    def _there(self, path: str) -> bytes | None:
        if path not in self.there:
            state = self.target.read(path)
            self.there[path] = state.data if state else None
        return self.there[path]

    def _target_path(self, path: str) -> str | None:
        """The file's name in the target, None when it has gone."""
        if self._there(path) is not None:
            return path
        new = self.renames.get(path)
        return new if new is not None and self._there(new) is not None else None

    def _created(self, change: FileChange) -> HunkFit:
        assert change.new_path is not None
        path = change.new_path
        wanted = with_hunks(b"", change.hunks)
        there = self._there(path)
        self.there[path] = wanted
        hunk = change.hunks[0] if change.hunks else None
        if there is None:
            return HunkFit(path, change.line, "exact", hunk=hunk)
        kind: FitKind = "upstream" if there == wanted else "conflict"
        note = "a new file, and the source has one of this name"
        lines = split_lines(there)
        return HunkFit(
            path, change.line, kind, to_path=path, note=note, hunk=hunk,
            found=(1, lines[:_SHOWN_BEYOND]),
        )  # fmt: skip

    def _gone(self, change: FileChange, patch: Patch) -> list[HunkFit]:
        path = change.path
        rests_on = self.failed.get(path, "")
        self.failed.setdefault(path, patch.name)
        note = f"{self.target.label} has no {path}, and no file like it"
        return [
            HunkFit(
                path,
                hunk.line if hunk else change.line,
                "gone",
                note=note,
                hunk=hunk,
                expected=(hunk.old_start, hunk.old_lines) if hunk else (0, ()),
                rests_on=rests_on,
            )
            for hunk in change.hunks or (None,)
        ]

    def _whole(self, change: FileChange, to_path: str, same: bool) -> HunkFit:
        """A section without hunks: a mode, a pure rename, an empty file that goes."""
        path = change.path
        kind: FitKind = "exact"
        if change.kind == "mode" and change.new_mode is not None:
            state = self.target.read(to_path)
            kind = "upstream" if state and state.mode == change.new_mode else "exact"
        elif not same:
            kind = "merged"
        if to_path != change.old_path:
            return HunkFit(path, change.line, "renamed", to_path=to_path, inner=kind)
        return HunkFit(path, change.line, kind, to_path=to_path)

    def _hunks(
        self, patch: Patch, change: FileChange, to_path: str, base: bytes, ours: bytes
    ) -> list[HunkFit]:
        fits = []
        for hunk in change.hunks:
            placed = fit_hunk(self.merger, hunk, base, ours)
            if change.kind == "delete" and base != ours:
                placed = Placed("conflict")
            fit = HunkFit(
                change.path, hunk.line, placed.kind, placed.offset, to_path, hunk=hunk
            )
            if to_path != change.old_path:
                fit = replace(fit, kind="renamed", inner=placed.kind)
            if placed.kind not in ("exact", "moved"):
                fit = self._explained(fit, hunk, base, ours)
            if placed.kind == "conflict":
                blamed = self.failed.get(change.path, "")
                if not fit.causes:
                    fit = replace(fit, rests_on=blamed)
                self.failed.setdefault(change.path, patch.name)
            fits.append(fit)
        return fits

    def _explained(self, fit: HunkFit, hunk: Hunk, base: bytes, ours: bytes) -> HunkFit:
        begin, end = place(hunk)
        changes = self._changes_of(base, ours)
        lines = split_lines(ours)
        first = changes.new_line(begin)
        last = max(changes.new_line(end, after=True), first)
        last = min(last, first + (end - begin) + _SHOWN_BEYOND, len(lines))
        return replace(
            fit,
            expected=(hunk.old_start, hunk.old_lines),
            found=(first + 1, lines[first:last]),
            causes=self._causes(fit, begin, end, base),
        )

    def _causes(
        self, fit: HunkFit, begin: int, end: int, base: bytes
    ) -> tuple[UpstreamChange, ...]:
        """The smallest changes from source to target that reach into the hunk."""
        assert fit.hunk is not None
        old_path, new_path = fit.path, fit.to_path or fit.path
        old, new = (
            self._pinned(self.source, old_path),
            self._pinned(self.target, new_path),
        )
        if old is None or new is None:
            return ()
        back = self._changes_of(old, base).inverse()
        first, last = back.new_line(begin), back.new_line(end, after=True)
        old_lines, new_lines = split_lines(old), split_lines(new)
        return tuple(
            UpstreamChange(
                new_path,
                each.old_start + 1,
                old_lines[each.old_start : each.old_end],
                each.new_start + 1,
                new_lines[each.new_start : each.new_end],
            )
            for each in self._changes_of(old, new).touching(first, last)
        )

    @staticmethod
    def _pinned(source: CommitSource, path: str) -> bytes | None:
        state: FileState | None = source.read(path)
        return state.data if state else None

    def _changes_of(self, before: bytes, after: bytes) -> LineChanges:
        key = (self.merger.blob(before), self.merger.blob(after))
        if key not in self.changes:
            self.changes[key] = line_changes(self.merger.git, *key)
        return self.changes[key]

    def _carry(
        self,
        change: FileChange,
        to_path: str,
        base: bytes,
        ours: bytes,
        fits: Sequence[HunkFit],
    ) -> None:
        """Give the target what of this section fits it, for the patches that follow."""
        usable = [fit.hunk for fit in fits if fit.hunk is not None and fit.merges]
        data: bytes | None = ours
        if usable:
            merged = self.merger.merge(base, ours, with_hunks(base, usable))
            data = merged.data if merged.clean else ours
        if change.kind in ("delete", "rename"):
            self.there[to_path] = None
        if change.kind == "delete":
            data = None
        elif change.new_path is not None and change.new_path != change.old_path:
            to_path = change.new_path
        self.there[to_path] = data
