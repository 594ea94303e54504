"""``releases.toml``: which releases there are and where their sources come from."""

from __future__ import annotations

import contextlib
import difflib
import sys
from pathlib import Path
from typing import Annotated, Any

from packaging.version import InvalidVersion, Version
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from patchkit.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).resolve().parents[2]
FLAVOURS = ("capture", "ascend")

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
PythonVersion = Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}$")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^(/[^/\s]+)+$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Sdist(_Table):
    """One pinned source distribution, by file name and SHA-256 (64 hex digits)."""

    version: Text
    file: Annotated[str, StringConstraints(pattern=r"^[\w.+-]+\.tar\.gz$")]
    sha256: Sha256


class PinnedImage(_Table):
    """An image of a registry; without a digest it is not pinned yet."""

    name: Text
    tag: Text
    digest: Digest | None = None

    @property
    def reference(self) -> str:
        """The reference to pull: by digest where there is one."""
        return (
            f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"
        )


class BaseImage(PinnedImage):
    """An image that may be patched.

    ``package_root`` is the folder in the image that holds ``vllm/``.
    """

    package_root: AbsolutePath


class LocalBase(_Table):
    """What the base made on the spot holds (``BASE=local``)."""

    suite: Text
    wheel: Text
    version: Text
    python: PythonVersion
    package_root: AbsolutePath


class Release(_Table):
    """One release: the versions its series applies to, newest first.

    The first version is what ``VERSION=0.25`` means and the first image is the base
    that ``make image`` takes. ``python`` is that of the images. On ``cann`` images vLLM
    is put for the flavour ``ascend``.
    """

    name: str
    versions: Annotated[tuple[str, ...], Field(min_length=1)]
    directory: Text
    python: PythonVersion
    torch: Text
    sdist: Annotated[tuple[Sdist, ...], Field(min_length=1)]
    image: tuple[BaseImage, ...] = ()
    cann: tuple[PinnedImage, ...] = ()
    local_base: LocalBase | None = None

    @field_validator("versions")
    @classmethod
    def _are_versions(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        parsed = [_version(version) for version in versions]
        if len(set(parsed)) < len(parsed):
            raise ValueError("a version stands twice")
        if parsed != sorted(parsed, reverse=True):
            raise ValueError("must stand newest first")
        return versions

    @field_validator("directory")
    @classmethod
    def _is_inside(cls, directory: str) -> str:
        path = Path(directory)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError("must be a folder inside the project")
        return directory

    @model_validator(mode="after")
    def _tables_match(self) -> Release:
        series = _version(self.name).release
        for version in self.versions:
            if Version(version).release[: len(series)] != series:
                raise ValueError(f"{version} is no version of {self.name}")
        pinned = [sdist.version for sdist in self.sdist]
        if sorted(pinned) != sorted(self.versions):
            raise ValueError(
                f"sdist tables are for {', '.join(pinned)}; versions are "
                f"{', '.join(self.versions)}"
            )
        # What copying a table and forgetting a line leaves behind.
        for sdist in self.sdist:
            if not sdist.file.endswith(f"-{sdist.version}.tar.gz"):
                raise ValueError(f"sdist {sdist.version} has the file {sdist.file}")
        if len({sdist.sha256 for sdist in self.sdist}) < len(self.sdist):
            raise ValueError("two sdist tables have the same sha256")
        tags = [(image.name, image.tag) for image in (*self.image, *self.cann)]
        for name, tag in tags:
            if tags.count((name, tag)) > 1:
                raise ValueError(f"image {name}:{tag} stands twice")
        return self

    @property
    def path(self) -> Path:
        """The folder with the release's series and patches."""
        return PROJECT / self.directory

    @property
    def flavours(self) -> tuple[str, ...]:
        """The flavours this release has a series for, the default first."""
        files = {"capture": "series", "ascend": "series-ascend"}
        return tuple(name for name in FLAVOURS if (self.path / files[name]).is_file())

    @property
    def feature_version(self) -> tuple[int, int]:
        """The Python grammar that patched files must compile under."""
        major, minor = self.python.split(".")
        return int(major), int(minor)

    def find_sdist(self, version: str) -> Sdist:
        """The pinned sdist of an accepted version."""
        return next(sdist for sdist in self.sdist if sdist.version == version)


class Releases(_Table):
    """Every release, as the file has them."""

    file: Path
    release: dict[str, Release]

    def find(self, wanted: str) -> Release:
        """The release for ``0.25``, ``v0.25``, ``0.25.0`` or ``0.25.1``.

        Raises UsageError, which lists those there are.
        """
        return self.find_version(wanted)[0]

    def find_version(self, wanted: str) -> tuple[Release, str]:
        """The release and the exact version meant; ``0.25`` means its newest."""
        text = wanted.strip().lower().removeprefix("v")
        version = None
        with contextlib.suppress(InvalidVersion):
            version = Version(text)
        for release in self.release.values():
            # By its text: as versions, 0.25 and 0.25.0 are equal.
            if text == release.name:
                return release, release.versions[0]
            for accepted in release.versions:
                if Version(accepted) == version:
                    return release, accepted
        there = "; ".join(
            f"{release.name} ({', '.join(release.versions)})"
            for release in self.release.values()
        )
        raise UsageError(f"no release {wanted!r}; there are: {there}")


def load_releases(path: Path | None = None) -> Releases:
    """Read and check ``releases.toml``.

    Raises UsageError with the file, the key and the reason for the first fault.
    """
    file = path or PROJECT / "releases.toml"
    try:
        data: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        # An installed verify-hunks, which has patch files to judge and no releases.
        raise UsageError(
            f"{file}: No such file: releases are those of a checkout of the kit"
        ) from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: no TOML: {error}") from None
    table = data.get("release")
    if not isinstance(table, dict) or not table:
        raise UsageError(f'{file}: release: no release table ([release."0.25"])')
    if unknown := sorted(set(data) - {"release"}):
        raise UsageError(f"{file}: {unknown[0]}: unknown key; every table is a release")
    for name, entry in table.items():
        if not isinstance(entry, dict):
            raise UsageError(f"{file}: release.{name}: must be a table")
        if "name" in entry:
            raise UsageError(f'{file}: release."{name}".name: unknown key')
        entry["name"] = name
    try:
        # Arrays of TOML are lists; in strict mode only JSON input makes them tuples.
        releases = Releases.model_validate(_frozen({**data, "file": file}))
    except ValidationError as error:
        raise UsageError(_first_fault(file, error)) from None
    _refuse_shared_versions(file, releases)
    return releases


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise ValueError(f"{text!r} is no version") from None


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return tuple(_frozen(entry) for entry in value)
    return value


def _first_fault(file: Path, error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    key = ""
    for part in fault["loc"]:
        if isinstance(part, int):
            key += f"[{part}]"
        elif "." in part:
            key += f'."{part}"' if key else f'"{part}"'
        else:
            key += f".{part}" if key else part
    reasons = {
        "missing": "is missing",
        "extra_forbidden": "unknown key",
        "tuple_type": "must be a list",
        "dict_type": "must be a table",
        "model_type": "must be a table",
    }
    reason = reasons.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    if fault["type"] == "extra_forbidden":
        reason += _closest(fault["loc"])
    return f"{file}: {key}: {reason}"


def _closest(location: tuple[int | str, ...]) -> str:
    """The known key that an unknown one was probably meant to be."""
    tables: dict[object, type[_Table]] = {
        "sdist": Sdist,
        "image": BaseImage,
        "cann": PinnedImage,
        "local_base": LocalBase,
    }
    inner = next((tables[part] for part in location if part in tables), Release)
    known = [
        key
        for key in inner.model_fields
        if key != "name" or issubclass(inner, PinnedImage)
    ]
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _refuse_shared_versions(file: Path, releases: Releases) -> None:
    owner: dict[Version, str] = {}
    for release in releases.release.values():
        for version in release.versions:
            parsed = Version(version)
            if parsed in owner:
                raise UsageError(
                    f'{file}: release."{release.name}".versions: {version} belongs to '
                    f"release {owner[parsed]} already"
                )
            owner[parsed] = release.name
