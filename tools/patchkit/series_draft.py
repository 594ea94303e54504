"""A release's series as it is to be: texts, names and ledger, before any is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit import releases as releases_module
from patchkit.errors import Refused
from patchkit.file_state import FileState
from patchkit.ledger import LedgerEntry, ledger_text, read_ledger
from patchkit.patch_names import number_names, stem_of
from patchkit.plan_types import Plan, PlannedFile
from patchkit.releases import Release
from patchkit.series import LEDGER
from patchkit.series_file import SERIES_FILES, SeriesText, read_series_text

_NEW_HEAD = (
    "# One patch a line, in order; each prefix can be used by itself. ../vX.Y/… is the",
    "# text of another release, which serves this one as it is.",
)


@dataclass(frozen=True)
class DraftPatch:
    """One patch of a draft.

    ``data`` is the text of the patch file. ``before`` is the entry that it had in its
    series file, None for a new one. ``shared`` is the file of another release that
    holds this very text. ``known`` fills its ledger table when it has none.
    """

    series_file: str
    stem: str
    data: bytes
    before: str | None = None
    shared: Path | None = None
    known: Mapping[str, str] | None = None


@dataclass(frozen=True)
class SeriesDraft:
    """Every patch of a release, of all its series files in order."""

    release: Release
    patches: tuple[DraftPatch, ...]
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Settle the file names of the release's own patches; "" for shared ones."""
        own = [patch for patch in self.patches if patch.shared is None]
        before = [
            patch.before if patch.before and "/" not in patch.before else None
            for patch in own
        ]
        places = [n for n, p in enumerate(self.patches, 1) if p.shared is None]
        given = iter(number_names([patch.stem for patch in own], before, places))
        names = tuple("" if p.shared is not None else next(given) for p in self.patches)
        object.__setattr__(self, "names", names)

    def path_of(self, number: int) -> Path:
        """The file that will hold the text of patch ``number`` (from 0)."""
        shared = self.patches[number].shared
        return shared if shared is not None else self.release.path / self.names[number]

    def entry_of(self, number: int) -> str:
        """The line of patch ``number`` in its series file."""
        shared = self.patches[number].shared
        if shared is None:
            return self.names[number]
        return f"../{shared.parent.name}/{shared.name}"


def read_draft(release: Release) -> SeriesDraft:
    """The release's series as the files have it.

    A file that cannot be read is a UsageError of ``load_series``, which goes first.
    """
    patches = []
    for name in all_series_files(release):
        for line in read_series_text(release.path / name).lines:
            path = (release.path / line.entry).resolve()
            shared = path if path.parent != release.path.resolve() else None
            patches.append(
                DraftPatch(
                    name, stem_of(line.entry), path.read_bytes(), line.entry, shared
                )
            )
    return SeriesDraft(release, tuple(patches))


def all_series_files(release: Release) -> list[str]:
    """The series files of a release that are there, capture's first."""
    names = dict.fromkeys(name for each in SERIES_FILES.values() for name in each)
    return [name for name in names if (release.path / name).is_file()]


def plan_drafts(drafts: Iterable[SeriesDraft]) -> Plan:
    """The plan, for the project's folder, that writes the drafts and nothing else.

    Raises Refused where a new name is taken by a file that is no patch of its series.
    """
    wanted: dict[Path, bytes | None] = {}
    new: dict[Path, bytes] = {}
    for draft in drafts:
        _plan_draft(draft, wanted, new)
    for path in new:
        if path.exists() and path not in wanted:
            raise Refused(
                f"{_shown(path)} is there, and in no series of its folder",
                hint="rename or remove it; nothing was written",
            )
    wanted.update(new)
    files = []
    for path, data in wanted.items():
        before = FileState(path.read_bytes()) if path.is_file() else None
        after = None if data is None else FileState(data)
        files.append(PlannedFile(_shown(path), before, after))
    return Plan("apply", tuple(sorted(files, key=lambda file: file.path)))


def _plan_draft(
    draft: SeriesDraft, wanted: dict[Path, bytes | None], new: dict[Path, bytes]
) -> None:
    folder = draft.release.path
    # Series files keep their modes and comments; files whose patch went are removed.
    for patch in draft.patches:
        if patch.before is not None and "/" not in patch.before:
            wanted[folder / patch.before] = None
    for name in {*all_series_files(draft.release), *_files_of(draft)}:
        text = read_series_text(folder / name)
        if not (folder / name).is_file():
            text = SeriesText(_NEW_HEAD)
        for line in text.lines:
            if not line.shared:
                wanted[folder / line.entry] = None
        entries = [
            (draft.entry_of(number), patch.before)
            for number, patch in enumerate(draft.patches)
            if patch.series_file == name
        ]
        new[folder / name] = str(text.with_entries(entries)).encode()
        wanted[folder / name] = None
    for number, patch in enumerate(draft.patches):
        if patch.shared is None:
            new[draft.path_of(number)] = patch.data
    ledger = folder / LEDGER
    wanted[ledger] = None
    entries_of_ledger = _ledger_entries(draft)
    if entries_of_ledger or ledger.is_file():
        new[ledger] = ledger_text(ledger, entries_of_ledger).encode()


def _files_of(draft: SeriesDraft) -> set[str]:
    return {patch.series_file for patch in draft.patches} or {"series"}


def _ledger_entries(draft: SeriesDraft) -> list[LedgerEntry]:
    tables = read_ledger(draft.release.path / LEDGER)
    out = []
    for number, patch in enumerate(draft.patches):
        if patch.shared is not None:
            continue
        before = patch.before if patch.before in tables else None
        known = patch.known
        if before is None and known is None and patch.before and "/" in patch.before:
            # It was another release's text: what was said there is still so.
            origin = (draft.release.path / patch.before).resolve()
            known = read_ledger(origin.parent / LEDGER).get(origin.name)
        out.append(LedgerEntry(draft.names[number], before, known))
    return out


def equal_text(data: bytes, stem: str, drafts: Sequence[SeriesDraft]) -> Path | None:
    """Another release's file with these bytes and this stem, if there is one."""
    for draft in drafts:
        for number, patch in enumerate(draft.patches):
            if patch.shared is None and (patch.stem, patch.data) == (stem, data):
                return draft.path_of(number)
    return None


def _shown(path: Path) -> str:
    project = releases_module.PROJECT.resolve()
    return path.resolve().relative_to(project).as_posix()
