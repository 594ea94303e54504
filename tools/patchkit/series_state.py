"""How much of a series a tree holds: told by blob ids, else by undoing and redoing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.blob import is_null
from patchkit.contradictions import agree
from patchkit.diff_model import FileChange, Patch
from patchkit.file_state import UnsafePath
from patchkit.plan_types import Policy
from patchkit.reverse import reverse_patch
from patchkit.step import Misfit, take_step
from patchkit.virtual_tree import Entry, VirtualTree


@dataclass(frozen=True)
class Expected:
    """What a diff says of one path at one point; None: it does not say."""

    present: bool
    blob: str | None = None
    mode: int | None = None

    def met_by(self, entry: Entry | None) -> bool:
        """Tell whether the file found is as expected."""
        if entry is None or not self.present:
            return self.present == (entry is not None)
        return (self.blob is None or entry.has_id(self.blob)) and (
            self.mode is None or entry.state.mode == self.mode
        )

    def may_be(self, other: Expected) -> bool:
        """Tell whether one file can be as both say; modes are left to the walk."""
        return self.present == other.present and agree(self.blob, other.blob)


@dataclass
class Run:
    """Patches taken one after the other: the last image, and what came up."""

    image: VirtualTree
    misfits: list[Misfit]
    fits: bool = True


@dataclass
class Standing:
    """Where a tree stands: after the first ``count`` patches.

    ``count`` is None where that cannot be told: ``rivals`` then holds the counts
    that fit equally well (two or more), or nothing where none does. ``allowed`` are
    the counts that no blob id speaks against. ``undone`` and ``ahead`` are the walks
    back from the tree to the series' start, and on to its end, where they were made.
    """

    count: int | None
    allowed: tuple[int, ...]
    rivals: tuple[int, ...] = ()
    undone: Run | None = None
    ahead: Run | None = None


def touched_paths(patches: Sequence[Patch]) -> tuple[str, ...]:
    """Every path the patches change, in order; a copy's source is not changed."""
    paths: dict[str, None] = {}
    for patch in patches:
        for change in patch.files:
            if change.old_path is not None and change.kind != "copy":
                paths[change.old_path] = None
            if change.new_path is not None:
                paths[change.new_path] = None
    return tuple(paths)


def find_standing(
    patches: Sequence[Patch], tree: VirtualTree, policy: Policy
) -> Standing:
    """Tell after how many of ``patches`` the tree stands.

    A path whose bytes have an id that the series names decides for that path: only
    counts that agree with it are allowed. Where every path decides, nothing else is
    asked. Elsewhere each count is tried: its patches must come off strictly, go on
    again to the very bytes of the tree, and the rest must fit on top.
    """
    allowed, decided = _by_ids(patches, tree)
    if decided and allowed:
        count = max(allowed)
        return Standing(count, allowed, ahead=walk_on(patches[count:], tree, policy))
    viable: list[Standing] = []
    for count in allowed:
        undone = walk_back(patches[:count], tree, policy)
        if not undone.fits:
            continue
        ahead = walk_on(patches[count:], tree, policy)
        if ahead.fits:
            viable.append(Standing(count, allowed, undone=undone, ahead=ahead))
    if not viable:
        return Standing(None, allowed)
    best = viable[-1]
    paths = touched_paths(patches)
    if any(
        not _same(paths, best.ahead, other.ahead)
        or not _same(paths, best.undone, other.undone)
        for other in viable[:-1]
    ):
        rivals = tuple(
            standing.count for standing in viable if standing.count is not None
        )
        return Standing(None, allowed, rivals=rivals)
    return best


def walk_on(patches: Sequence[Patch], image: VirtualTree, policy: Policy) -> Run:
    """Take the patches in order; stops at the first that does not fit."""
    run = Run(image, [])
    for patch in patches:
        step = take_step(patch, run.image, policy)
        run.misfits += step.misfits
        if not step.fits:
            run.fits = False
            break
        run.image = step.image
    return run


def walk_back(patches: Sequence[Patch], image: VirtualTree, policy: Policy) -> Run:
    """Undo the patches, last first, and prove it by doing them again."""
    run = walk_on([reverse_patch(patch) for patch in reversed(patches)], image, policy)
    if run.fits:
        again = walk_on(patches, run.image, "context")
        back = Run(image, [])
        run.fits = again.fits and _same(touched_paths(patches), again, back)
    return run


def _same(paths: Sequence[str], one: Run | None, other: Run | None) -> bool:
    assert one is not None
    assert other is not None
    return all(_state(one.image, path) == _state(other.image, path) for path in paths)


def _state(image: VirtualTree, path: str) -> object:
    try:
        entry = image.read(path)
    except UnsafePath as error:
        return error.reason
    return None if entry is None else entry.state


def _by_ids(
    patches: Sequence[Patch], tree: VirtualTree
) -> tuple[tuple[int, ...], bool]:
    """The counts that agree with every id found, and whether every path decided."""
    allowed = set(range(len(patches) + 1))
    decided = True
    for path in touched_paths(patches):
        expected = _expected(patches, path)
        if expected is None:
            decided = False
            continue
        try:
            entry = tree.read(path)
        except UnsafePath:
            decided = False
            continue
        agreeing = {
            count
            for count, choices in enumerate(expected[0])
            if any(choice.met_by(entry) for choice in _telling(choices))
        }
        if agreeing:
            allowed &= agreeing
        decided = decided and bool(agreeing) and expected[1]
    return tuple(sorted(allowed)), decided


def _telling(choices: set[Expected]) -> set[Expected]:
    """Leave out what says less: a pure rename or mode change names no bytes."""
    exact = {choice for choice in choices if choice.blob or not choice.present}
    return exact or choices


def _expected(
    patches: Sequence[Patch], path: str
) -> tuple[list[set[Expected]], bool] | None:
    """What may lie at ``path`` after 0, 1, … patches, and whether ids say it fully.

    None where one patch has two sections for the path: their ids name states in the
    middle of a patch, in which no tree should be. Nor do ids tell anything where a
    patch was not made on top of the one before it: two changes of one file, say.
    """
    choices: list[set[Expected]] = [set() for _ in range(len(patches) + 1)]
    full = True
    last: Expected | None = None
    since = 0
    for number, patch in enumerate(patches, start=1):
        sections = [
            change
            for change in patch.files
            if path == change.new_path
            or (path == change.old_path and change.kind != "copy")
        ]
        if not sections:
            continue
        if len(sections) > 1:
            return None
        before, after, says_all = _sides(sections[0], path)
        if last is not None and not last.may_be(before):
            return None
        for count in range(since, number):
            choices[count].add(before)
            if last is not None:
                choices[count].add(last)
        full, last, since = full and says_all, after, number
    for count in range(since, len(choices)):
        if last is not None:
            choices[count].add(last)
    return choices, full


def _sides(change: FileChange, path: str) -> tuple[Expected, Expected, bool]:
    absent = Expected(present=False)
    old_id, new_id = _id(change.old_blob), _id(change.new_blob)
    modes: tuple[int | None, int | None] = (change.old_mode, change.new_mode)
    if change.old_path is not None and change.old_mode == change.new_mode:
        # An index line's mode: git only warns of another, so it decides nothing.
        modes = (None, None)
    before = Expected(True, old_id, modes[0])
    after = Expected(True, new_id, modes[1])
    known = None not in (old_id, new_id)
    if change.kind in ("rename", "copy"):
        return (
            (absent, after, known)
            if path == change.new_path
            else (before, absent, known)
        )
    if change.old_path is None:
        return absent, after, new_id is not None
    if change.new_path is None:
        return before, absent, old_id is not None
    return before, after, known


def _id(stated: str | None) -> str | None:
    return None if stated is None or is_null(stated) else stated
