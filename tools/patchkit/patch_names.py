"""Names of patch files: which commit keeps which name, and the numbers of the rest."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_NAME = re.compile(r"(\d{4})-([\w.-]+)\.patch")
_SLUG_LENGTH = 52


def stem_of(entry: str) -> str:
    """The name of a patch without folder, number and suffix."""
    name = entry.rpartition("/")[2]
    match = _NAME.fullmatch(name)
    return match[2] if match else name.removesuffix(".patch")


def slug(subject: str) -> str:
    """A file name's words for a subject: lower case, joined by hyphens."""
    plain = unicodedata.normalize("NFKD", subject).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", plain.lower())
    out = ""
    for word in words:
        longer = f"{out}-{word}" if out else word
        if len(longer) > _SLUG_LENGTH and out:
            break
        out = longer[:_SLUG_LENGTH]
    return out or "patch"


def number_names(
    stems: Sequence[str], before: Sequence[str | None], places: Sequence[int]
) -> list[str]:
    """File names for the patches of one folder, in order.

    ``before`` has the name that each had, or None; ``places`` its place in the whole
    series, from 1, other releases' texts counted. Names are kept while their numbers
    ascend and new ones fit in between; otherwise every patch has its place's number.
    Stems that stand twice are told apart by a number.
    """
    unique = _unique(stems)
    kept = _keep_numbers(unique, before, places)
    if kept is not None:
        return kept
    return [
        f"{place:04}-{stem}.patch" for place, stem in zip(places, unique, strict=True)
    ]


def _unique(stems: Sequence[str]) -> list[str]:
    out: list[str] = []
    for stem in stems:
        name, count = stem, 2
        while name in out:
            name, count = f"{stem}-{count}", count + 1
        out.append(name)
    return out


def _keep_numbers(
    stems: Sequence[str], before: Sequence[str | None], places: Sequence[int]
) -> list[str] | None:
    matches = [_NAME.fullmatch(name) if name else None for name in before]
    numbers = [int(match[1]) if match else None for match in matches]
    last = 0
    out = []
    for stem, known, place in zip(stems, numbers, places, strict=True):
        number = max(last + 1, place) if known is None else known
        if number <= last or number > 9999:
            return None
        out.append(f"{number:04}-{stem}.patch")
        last = number
    return out
