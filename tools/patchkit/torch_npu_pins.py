"""``torch_npu.toml``: the wheels of torch_npu that Ascend series are held against."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from patchkit.errors import UsageError
from patchkit.pinned_file import fetch_pinned
from patchkit.releases import PROJECT, Release, Sha256, Text, load_releases

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT_NAME = "torch-npu"
FILE = PROJECT / "torch_npu.toml"
ARCHITECTURES = ("x86_64", "aarch64")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Wheel(_Table):
    """One pinned wheel, by file name and SHA-256 (64 hex digits)."""

    file: Annotated[str, StringConstraints(pattern=r"^torch_npu-[\w.-]+\.whl$")]
    sha256: Sha256

    @model_validator(mode="after")
    def _is_of_an_architecture(self) -> Wheel:
        try:
            known = self.architecture in ARCHITECTURES
        except InvalidWheelFilename as error:
            raise ValueError(str(error)) from None
        if not known:
            raise ValueError(f"{self.file} is for none of {', '.join(ARCHITECTURES)}")
        return self

    @property
    def version(self) -> str:
        """Such as ``2.11.0.post3``."""
        return self.file.split("-")[1]

    @property
    def architecture(self) -> str:
        """``x86_64`` or ``aarch64``."""
        *_, tags = parse_wheel_filename(self.file)
        platform = next(iter(tags)).platform
        is_linux = "linux" in platform
        found = (each for each in ARCHITECTURES if platform.endswith(f"_{each}"))
        return next(found, platform) if is_linux else platform

    @property
    def label(self) -> str:
        """What findings call it."""
        return f"torch_npu {self.version} {self.architecture}"

    def fetch(self, *, offline: bool = False) -> Path:
        """Its path in the cache; raises EnvironmentProblem as ``fetch_pinned`` does."""
        return fetch_pinned(
            PROJECT_NAME, self.file, self.sha256, "wheels", offline=offline
        )


class TorchNpu(_Table):
    """One release of torch_npu.

    It is for the vLLM releases that pin its ``torch``, and for those in ``images``.
    """

    torch: Text
    images: tuple[Text, ...] = ()
    wheel: Annotated[tuple[Wheel, ...], Field(min_length=1)]


class TorchNpuPins(_Table):
    """Every table of the file, by version."""

    torch_npu: dict[str, TorchNpu]

    @model_validator(mode="after")
    def _wheels_match(self) -> TorchNpuPins:
        for version, pinned in self.torch_npu.items():
            for wheel in pinned.wheel:
                if Version(wheel.version) != Version(version):
                    raise ValueError(f"{wheel.file} stands below {version}")
            known = load_releases().release
            for name in pinned.images:
                if name not in known:
                    raise ValueError(f"images of {version}: no release {name}")
        for key in ("sha256", "file"):
            values = [getattr(wheel, key) for wheel in self.wheels]
            if len(set(values)) < len(values):
                raise ValueError(f"two wheels have the same {key}")
        return self

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """All of them."""
        return tuple(wheel for each in self.torch_npu.values() for wheel in each.wheel)

    def wheels_for(self, release: Release) -> tuple[Wheel, ...]:
        """Those that the release's series has to fit; none if there are none for it."""
        return tuple(
            wheel
            for each in self.torch_npu.values()
            if each.torch == release.torch or release.name in each.images
            for wheel in each.wheel
        )


def load_torch_npu_pins(file: Path = FILE) -> TorchNpuPins:
    """Read and check ``torch_npu.toml``; raises UsageError for the first fault."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        return TorchNpuPins.model_validate(data)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(map(str, fault["loc"]))
        where = f"{file}: {key}" if key else str(file)
        raise UsageError(f"{where}: {fault['msg']}") from None
    except ValueError as error:
        raise UsageError(f"{file}: no TOML: {error}") from None
