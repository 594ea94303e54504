"""releases.toml: lookups by every spelling, and a clear refusal of every bad table."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from one_release import releases_text

from patchkit.errors import UsageError
from patchkit.releases import Releases, load_releases

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

GOOD = releases_text()
# What may be left out, by the key's own name.
OPTIONAL = {"image", "cann", "local_base", "digest"}


def as_toml(value: Any) -> str:
    """A value as TOML on one line: inline tables need no layout."""
    if isinstance(value, dict):
        inner = ", ".join(f'"{key}" = {as_toml(v)}' for key, v in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def load(tmp_path: Path, data: dict[str, Any] | str) -> Releases:
    text = data
    if isinstance(data, dict):
        text = "".join(f'"{key}" = {as_toml(v)}\n' for key, v in data.items())
    file = tmp_path / "releases.toml"
    file.write_text(str(text), encoding="utf-8")
    return load_releases(file)


def refusal(tmp_path: Path, data: dict[str, Any] | str) -> str:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, data)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'releases.toml'}: ")
    assert "\n" not in text
    return text.partition("releases.toml: ")[2]


@pytest.fixture
def good() -> dict[str, Any]:
    return tomllib.loads(GOOD)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key and index of nested tables and lists."""
    if isinstance(value, dict):
        items: Any = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


PLACES = list(places(tomllib.loads(GOOD)))


def holder(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        data = data[key]
    return data


@pytest.mark.parametrize(
    ("wanted", "version"),
    [
        ("0.25", "0.25.1"),
        ("v0.25", "0.25.1"),
        ("V0.25", "0.25.1"),
        ("0.25.0", "0.25.0"),
        ("v0.25.0", "0.25.0"),
        (" 0.25.1 ", "0.25.1"),
    ],
)
def test_spellings(wanted: str, version: str) -> None:
    release, found = load_releases().find_version(wanted)
    assert (release.name, found) == ("0.25", version)
    assert load_releases().find(wanted) == release


@pytest.mark.parametrize("wanted", ["0.2", "0.25.2", "0.250", "latest", "", "v", "🙂"])
def test_unknown_version_lists_those_there_are(wanted: str) -> None:
    with pytest.raises(UsageError, match=r"there are: .*0\.25 \(0\.25\.1, 0\.25\.0\)"):
        load_releases().find(wanted)


def test_pins_are_those_of_the_index() -> None:
    """The digests as they were read off the index, written down a second time."""
    release = load_releases().find("0.25")
    assert {sdist.file: sdist.sha256[:16] for sdist in release.sdist} == {
        "vllm-0.25.0.tar.gz": "7e04e2b37164de8c",
        "vllm-0.25.1.tar.gz": "ddbdec3f1c0f21af",
    }
    base, rocm = release.image
    assert base.reference == (
        "vllm/vllm-openai@sha256:"
        "fc56161ee42a011aeee78b65d0a81b6683c7d04402fd40503d14d4d6c98f07cb"
    )
    assert rocm.digest is None
    assert release.flavours[0] == "capture"
    assert release.feature_version == (3, 12)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_each_key_is_needed_or_has_a_default(
    path: tuple[Any, ...], good: dict[str, Any], tmp_path: Path
) -> None:
    del holder(good, path)[path[-1]]
    if path[-1] in OPTIONAL or path[-2:-1] in (("image",), ("cann",)):
        load(tmp_path, good)
    else:
        text = refusal(tmp_path, good)
        assert text.startswith("release")
        if isinstance(path[-1], str) and len(path) > 2:
            assert f"{path[-1]}: is missing" in text


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("junk", [True, 7, "", [], {}], ids=str)
def test_each_key_refuses_another_type(
    path: tuple[Any, ...], junk: Any, good: dict[str, Any], tmp_path: Path
) -> None:
    holder(good, path)[path[-1]] = junk
    if path[-1] in ("image", "cann") and junk == []:
        load(tmp_path, good)
    else:
        assert refusal(tmp_path, good).startswith("release")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=150,
)
@given(data=st.data())
def test_no_damage_is_a_traceback(data: st.DataObject, tmp_path: Path) -> None:
    table = copy.deepcopy(tomllib.loads(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(table))))
        there = holder(table, path)
        if data.draw(st.booleans()):
            del there[path[-1]]
        else:
            junk = st.one_of(st.booleans(), st.integers(0, 9), st.just("x"))
            there[path[-1]] = data.draw(
                junk | st.lists(junk, max_size=2) | st.just({"odd": 1})
            )
        if not list(places(table)):
            break
    try:
        load(tmp_path, table)
    except UsageError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('sha256 = "ddb', 'sha256 = "DDB', r'release."0.25".sdist[0].sha256: '),
        ('b0c2e4"', 'b0c2e"', r'release."0.25".sdist[0].sha256: '),
        ('"sha256:fc5', '"md5:fc5', r'release."0.25".image[0].digest: '),
        (
            'digest = "sha256',
            'diggest = "sha256',
            'release."0.25".image[0].diggest: unknown key; did you mean digest?',
        ),
        (
            "directory =",
            "folder =",
            'release."0.25".directory: is missing',
        ),
        (
            'torch = "2.11.0"',
            'torch = "2.11.0"\ntorhc = "2.11.0"',
            'release."0.25".torhc: unknown key; did you mean torch?',
        ),
        (
            'python = "3.12"',
            'python = "3.12"\nzzz = 1',
            'release."0.25".zzz: unknown key; there are versions, directory',
        ),
        ('"patches/v0.25"', '"../v0.25"', 'release."0.25".directory: '),
        ('"patches/v0.25"', '"/v0.25"', 'release."0.25".directory: '),
        ('["0.25.1", "0.25.0"]', '["0.25.0", "0.25.1"]', "newest first"),
        ('["0.25.1", "0.25.0"]', '["0.25.1", "0.25.1"]', "stands twice"),
        ('["0.25.1", "0.25.0"]', '["0.25.1", "0.25.x"]', "'0.25.x' is no version"),
        ('["0.25.1", "0.25.0"]', '["0.25.1"]', "sdist tables are for 0.25.1, 0.25.0"),
        ("vllm-0.25.1.tar.gz", "vllm-0.25.0.tar.gz", "sdist 0.25.1 has the file"),
        ("vllm-0.25.1.tar.gz", "../0.25.1.tar.gz", 'release."0.25".sdist[0].file: '),
        ("vllm-openai-rocm", "vllm-openai", "image vllm/vllm-openai:v0.25.0 stands"),
        ('release."0.25"', 'release."0.26"', "0.25.1 is no version of 0.26"),
        ('release."0.25"', 'release."newest"', "'newest' is no version"),
        ('release."0.25"', 'relaese."0.25"', "release: no release table"),
        ("# The releases", 'name = "x"\n# The releases', "name: unknown key"),
        ('package_root = "/usr', 'package_root = "usr', "image[0].package_root: "),
        ('suite = "bookworm"', "suite = 12", 'release."0.25".local_base.suite: '),
    ],
)
def test_faults_name_key_and_reason(
    old: str, new: str, expected: str, tmp_path: Path
) -> None:
    assert old in GOOD
    count = -1 if old.startswith("release") else 1
    assert expected in refusal(tmp_path, GOOD.replace(old, new, count))


def test_a_digest_copied_to_another_sdist(tmp_path: Path) -> None:
    one, two = (s.sha256 for s in load_releases().find("0.25").sdist)
    said = refusal(tmp_path, GOOD.replace(two, one))
    assert "two sdist tables have the same sha256" in said


def test_two_releases_with_one_version(tmp_path: Path) -> None:
    table = GOOD[GOOD.index("[release") :]
    text = table + table.replace('release."0.25"', 'release."0"')
    expected = 'release."0".versions: 0.25.1 belongs to release 0.25 already'
    assert expected in refusal(tmp_path, text)


def test_bad_toml_names_the_line(tmp_path: Path) -> None:
    text = GOOD.replace('torch = "2.11.0"', "torch = 2.11.0")
    line = 1 + GOOD[: GOOD.index('torch = "2.11.0"')].count("\n")
    assert re.search(rf"no TOML: .*line {line}\b", refusal(tmp_path, text))


@pytest.mark.parametrize("data", [b"\xff\xfe", b""], ids=["not-utf-8", "empty"])
def test_no_table_at_all(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "releases.toml").write_bytes(data)
    with pytest.raises(UsageError, match=r"not UTF-8|no release table"):
        load_releases(tmp_path / "releases.toml")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_releases(tmp_path / "none.toml")
