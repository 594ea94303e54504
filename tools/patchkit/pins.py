"""Pins of base images: what registries say against what ``releases.toml`` has."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.cache import whole_file
from patchkit.errors import KitError, UsageError
from patchkit.registry import TagDigests, resolve_tag
from patchkit.releases import PinnedImage, Release, load_releases

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PinState = Literal["as-pinned", "not-pinned", "moved", "unknown"]
_HEADER = re.compile(r"\s*\[\[?[^#]*\]\]?\s*(#.*)?")


@dataclass(frozen=True)
class Pin:
    """One image of a release, and what its tag stands for now.

    ``moved``: the tag stands for another image than the pinned one. ``unknown``:
    no registry told; ``problem`` has the reason.
    """

    release: str
    image: PinnedImage
    state: PinState
    found: TagDigests | None = None
    problem: KitError | None = None


def resolve_pins(releases: Sequence[Release], mirror: str = "") -> list[Pin]:
    """Ask the registry of every image of the releases, in order."""
    return [
        _resolve(release.name, image, mirror)
        for release in releases
        for image in (*release.image, *release.cann)
    ]


def _resolve(release: str, image: PinnedImage, mirror: str) -> Pin:
    try:
        found = resolve_tag(image.name, image.tag, mirror)
    except KitError as error:
        return Pin(release, image, "unknown", problem=error)
    if image.digest is None:
        return Pin(release, image, "not-pinned", found)
    # A pin may name the whole index or, as some do, one architecture's image.
    digests = {found.digest, *(digest for _, digest in found.platforms)}
    state: PinState = "as-pinned" if image.digest in digests else "moved"
    return Pin(release, image, state, found)


def write_pins(file: Path, pins: Sequence[Pin]) -> None:
    """Put the digests found into ``releases.toml``; every other byte stays.

    Raises UsageError, with the file untouched, if its layout is not understood.
    """
    text = file.read_text(encoding="utf-8")
    expected = tomllib.loads(text)
    for pin in pins:
        assert pin.found is not None
        text = _with_digest(text, pin, pin.found.digest)
        table = expected["release"][pin.release]
        for entry in (*table.get("image", ()), *table.get("cann", ())):
            if (entry["name"], entry["tag"]) == (pin.image.name, pin.image.tag):
                entry["digest"] = pin.found.digest
    if tomllib.loads(text) != expected:
        raise UsageError(
            f"{file}: the digests could not be put in without other changes",
            hint="put them in by hand; tools/pins.py --format json lists them",
        )
    with whole_file(file) as partial:
        partial.write_bytes(text.encode())
        load_releases(partial)


def _with_digest(text: str, pin: Pin, digest: str) -> str:
    """The text with one image's digest, in the place of the old or after the tag."""
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if _HEADER.fullmatch(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        try:
            table = tomllib.loads("\n".join(lines[start:end]))
            release = table["release"][pin.release]
            (image,) = release["image"] if "image" in release else release["cann"]
            named = (image["name"], image["tag"]) == (pin.image.name, pin.image.tag)
        except (KeyError, TypeError, ValueError):
            continue
        if named:
            _set_digest(lines, start, end, digest)
    return "\n".join(lines)


def _set_digest(lines: list[str], start: int, end: int, digest: str) -> None:
    value = re.compile(r"(\s*digest\s*=\s*)(\"[^\"]*\"|'[^']*')(.*)", re.DOTALL)
    for i in range(start, end):
        if match := value.fullmatch(lines[i]):
            lines[i] = f'{match[1]}"{digest}"{match[3]}'
            return
    for i in range(start, end):
        if re.match(r"\s*tag\s*=", lines[i]):
            lines.insert(i + 1, f'digest = "{digest}"')
            return
