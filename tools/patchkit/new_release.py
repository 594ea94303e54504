"""Releases on the package index that the kit does not have, and a port for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from patchkit import releases as releases_module
from patchkit.commit import commit_to_tree
from patchkit.errors import KitError
from patchkit.file_state import FileState
from patchkit.index_versions import IndexedSdist
from patchkit.plan_types import Plan, PlannedFile
from patchkit.port import port
from patchkit.port_report import left_to_do
from patchkit.release_table import parsed, with_versions
from patchkit.releases import Release, Releases
from patchkit.series_draft import read_draft
from patchkit.shared_texts import fits_release

Kind = Literal["release", "version"]


@dataclass(frozen=True)
class Missing:
    """What the index has and the kit lacks: a release, or versions of one it has."""

    kind: Kind
    release: str
    versions: tuple[IndexedSdist, ...]  # oldest first

    def __str__(self) -> str:
        names = ", ".join(str(each.version) for each in self.versions)
        return f"{self.release} ({names})"


@dataclass(frozen=True)
class Arrival:
    """What came of one of them. ``todo`` is left to a person; ``failed`` a reason."""

    missing: Missing
    done: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()
    failed: str = ""


def find_missing(
    releases: Releases, indexed: Sequence[IndexedSdist]
) -> tuple[Missing, ...]:
    """What the kit lacks from its oldest release on, oldest first."""
    oldest = min(map(Version, releases.release))
    lacking: dict[str, list[IndexedSdist]] = {}
    for each in indexed:
        if Version(each.release) < oldest:
            continue
        release = releases.release.get(each.release)
        known = release.versions if release else ()
        if each.version not in map(Version, known):
            lacking.setdefault(each.release, []).append(each)
    return tuple(
        Missing(
            "version" if name in releases.release else "release",
            name,
            tuple(lacking[name]),
        )
        for name in sorted(lacking, key=Version)
    )


def take_in(
    load: Callable[[], Releases],
    missing: Sequence[Missing],
    progress: Callable[[str], None],
) -> list[Arrival]:
    """Port each new release from the one before it; add new versions that fit.

    ``load`` reads ``releases.toml``, which grows on the way. Patches with conflicts
    are left out and named, and the releases after that one are ported from the last
    that has them. What fails is named too, and the others go on.
    """
    arrivals = []
    whole = set(load().release)
    for each in missing:
        progress(f"{each}")
        try:
            if each.kind == "version":
                arrivals.append(_version(load(), each))
                continue
            arrival = _release(load(), each, whole)
            if not any(row.startswith("left out: ") for row in arrival.done):
                whole.add(each.release)
            arrivals.append(arrival)
        except KitError as error:
            hint = f"; {error.hint}" if error.hint else ""
            arrivals.append(Arrival(each, failed=f"{error}{hint}"))
    return arrivals


def nearest(releases: Releases, name: str, whole: Collection[str]) -> Release:
    """Of the releases named in ``whole`` the one before ``name``, or the first."""
    wanted = Version(name)
    names = sorted(whole, key=Version)
    before = [each for each in names if Version(each) < wanted]
    return releases.release[before[-1] if before else names[0]]


def _release(releases: Releases, missing: Missing, whole: Collection[str]) -> Arrival:
    source = nearest(releases, missing.release, whole)
    result = port(releases, source.name, missing.release, keep_going=True)
    done = tuple(f"{pick.outcome}: {pick.stem}" for pick in result.state.picks)
    return Arrival(missing, done, tuple(left_to_do(result)))


def _version(releases: Releases, missing: Missing) -> Arrival:
    release = releases.release[missing.release]
    file = releases.file
    patches = read_draft(release).patches
    done, todo = [], []
    for each in missing.versions:
        pinned = each.pin()
        if not fits_release([pinned], patches):
            newest = release.versions[0]
            todo.append(
                f"to do: the series of {release.name} does not fit {each.version}: "
                f"make drift FROM={newest} TO={each.version}"
            )
            continue
        text = file.read_text(encoding="utf-8")
        new = with_versions(text, releases.release[release.name], [pinned])
        releases = parsed(new, file)
        change = PlannedFile(
            file.name, FileState(text.encode()), FileState(new.encode())
        )
        plan = Plan("apply", (change,))
        commit_to_tree(plan, releases_module.PROJECT, remember=False)
        done.append(f"added: {each.version}, which the series fits")
    return Arrival(missing, tuple(done), tuple(todo))
