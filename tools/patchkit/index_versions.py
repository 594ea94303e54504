"""Which releases the user's package indexes have, with the digests they list."""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from patchkit.errors import UsageError
from patchkit.package_index import PackageIndex
from patchkit.releases import Releases, Sdist
from patchkit.upstream import PROJECT_NAME

_SDIST = re.compile(r"vllm-([^-]+)\.tar\.gz")


@dataclass(frozen=True)
class IndexedSdist:
    """A release's sdist on the index: final, not withdrawn."""

    version: Version
    file: str
    sha256: str

    @property
    def release(self) -> str:
        """The release it belongs to, such as ``0.26``."""
        return f"{self.version.major}.{self.version.minor}"

    def pin(self) -> Sdist:
        """It as a pinned sdist."""
        return Sdist(version=str(self.version), file=self.file, sha256=self.sha256)


def list_indexed() -> list[IndexedSdist]:
    """Every final release with an sdist and a digest, oldest first.

    Raises EnvironmentProblem when no index answers.
    """
    found: dict[Version, IndexedSdist] = {}
    for package in PackageIndex().list_files(PROJECT_NAME):
        match = _SDIST.fullmatch(package.file)
        if match is None or package.withdrawn or not package.sha256:
            continue
        try:
            version = Version(match[1])
        except InvalidVersion:
            continue
        if version.is_prerelease or version.local:
            continue
        found.setdefault(version, IndexedSdist(version, package.file, package.sha256))
    return [found[version] for version in sorted(found)]


def find_sdist(releases: Releases, wanted: str, *, offline: bool = False) -> Sdist:
    """The sdist of any version: as pinned, or with the digest that the index lists.

    ``0.26`` means its newest version. Raises UsageError for a version that neither
    the kit nor the index has.
    """
    try:
        release, version = releases.find_version(wanted)
        return release.find_sdist(version)
    except UsageError:
        if offline:
            raise
    return newest_sdist(wanted, list_indexed()).pin()


def newest_sdist(wanted: str, indexed: list[IndexedSdist]) -> IndexedSdist:
    """The one of ``0.26.1``, or the newest of ``0.26``; raises UsageError."""
    text = wanted.strip().lower().removeprefix("v")
    fits = [each for each in indexed if text in (each.release, str(each.version))]
    if not fits:
        there = dict.fromkeys(each.release for each in indexed[-60:])
        raise UsageError(
            f"no release {wanted!r} in releases.toml or on the package index",
            hint=f"the index has: {', '.join(list(there)[-12:]) or 'none'}",
        )
    return fits[-1]
