"""The drift of a release's series to a version or a folder, sources fetched."""

from __future__ import annotations

from pathlib import Path

from patchkit.errors import Refused
from patchkit.findings import has_errors
from patchkit.index_versions import find_sdist
from patchkit.releases import Releases
from patchkit.report import as_text
from patchkit.series import Series, load_series
from patchkit.series_drift import SeriesDrift, find_drift
from patchkit.source_store import (
    CommitSource,
    open_store,
    store_folder,
    store_source,
)


def drift_to_version(
    releases: Releases, source: str, target: str, flavour: str, offline: bool = False
) -> SeriesDrift:
    """How ``source``'s series fits another version, which may be none of the kit's.

    Raises UsageError for unknown versions, EnvironmentProblem without sources,
    Refused for a series that is not sound.
    """
    sdist = find_sdist(releases, target, offline=offline)
    commit = store_source(sdist, offline=offline)
    there = CommitSource(open_store(), commit, f"vLLM {sdist.version}")
    return _drift(releases, source, there, flavour, offline)


def drift_to_tree(
    releases: Releases, source: str, folder: Path, flavour: str, offline: bool = False
) -> SeriesDrift:
    """How ``source``'s series fits the files of a folder."""
    there = CommitSource(open_store(), store_folder(folder), str(folder))
    return _drift(releases, source, there, flavour, offline)


def _drift(
    releases: Releases,
    source: str,
    there: CommitSource,
    flavour: str,
    offline: bool,
) -> SeriesDrift:
    release, version = releases.find_version(source)
    series = sound_series(load_series(release, flavour))
    commit = store_source(release.find_sdist(version), offline=offline)
    here = CommitSource(open_store(), commit, f"vLLM {version}")
    return find_drift(series.patches, open_store(), here, there)


def sound_series(series: Series) -> Series:
    """The series; raises Refused with every finding when its files are not sound."""
    if has_errors(series.findings):
        errors = [found for found in series.findings if found.severity == "error"]
        raise Refused("\n".join(line for found in errors for line in as_text(found)))
    return series
