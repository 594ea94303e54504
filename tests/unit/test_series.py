"""Series files, headers, ledgers and the patch set's digest."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit import series as series_module
from patchkit.errors import UsageError
from patchkit.findings import Finding, has_errors
from patchkit.releases import PROJECT, Release, Sdist, load_releases
from patchkit.rules import series as rules
from patchkit.series import Series, load_series, patch_set_digest

SAMPLES = PROJECT / "tests" / "diffs"
GOOD = SAMPLES / "S508-patch-number" / "good" / "v1"


def release_in(directory: str) -> Release:
    return Release(
        name="1",
        versions=("1.0",),
        directory=directory,
        python="3.12",
        torch="2",
        sdist=(Sdist(version="1.0", file="vllm-1.0.tar.gz", sha256="0" * 64),),
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own: patches/v1 with two good patches and their ledger."""
    monkeypatch.setattr(series_module, "PROJECT", tmp_path)
    monkeypatch.setattr("patchkit.releases.PROJECT", tmp_path)
    target = tmp_path / "patches" / "v1"
    shutil.copytree(GOOD, target)
    return target


def load(flavour: str = "capture") -> Series:
    return load_series(release_in("patches/v1"), flavour)


def codes(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings}


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.id)
def test_each_rule_on_its_samples(rule: rules.Rule) -> None:
    place = f"tests/diffs/{rule.id}-{rule.name}"
    good = load_series(release_in(f"{place}/good/v1"))
    assert good.findings == ()
    bad = load_series(release_in(f"{place}/bad/v1"))
    own = [finding for finding in bad.findings if finding.code == rule.id]
    assert own
    assert {finding.severity for finding in own} == {rule.severity}
    assert all(finding.path.startswith(place) for finding in own)


def test_the_real_series_is_in_order() -> None:
    for release in load_releases().release.values():
        for flavour in release.flavours:
            series = load_series(release, flavour)
            assert series.findings == ()
            # The text of another release has its number there; places are by number.
            names = [Path(patch.name).name for patch in series.patches]
            assert names == sorted(names)
            assert all((PROJECT / patch.name).is_file() for patch in series.patches)


def test_paths_of_a_rename_are_both(folder: Path) -> None:
    (folder / "0002-y.patch").write_text(
        "Subject: Move\n\nMoves it.\n\nUpstream: no\n---\n"
        "diff --git a/old.py b/new.py\nsimilarity index 100%\n"
        "rename from old.py\nrename to new.py\n"
    )
    assert load().paths == ("m.py", "new.py", "old.py")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("../../secret.patch", "outside"),
        ("/etc/hosts.patch", "outside"),
        ("../v1/../../x.patch", "outside"),
        ("link.patch", "outside"),
        ("0009-no.patch", "no such file"),
        ("0001-x.diff", "wanted one *.patch file a line"),
        ("0001-x.patch 0002-y.patch", "wanted one *.patch file a line"),
        ("0001-x\0.patch", "no such file"),
        ("folder.patch", "no such file"),
    ],
)
def test_lines_that_name_no_patch(line: str, said: str, folder: Path) -> None:
    outside = folder.parents[1] / "secret.patch"
    outside.write_bytes((folder / "0001-x.patch").read_bytes())
    (folder / "link.patch").symlink_to(outside)
    (folder / "folder.patch").mkdir()
    (folder / "series").write_text(f"# first\n\n{line}\n")
    found = [f for f in load().findings if f.code == "S501"]
    assert [(f.path, f.line) for f in found] == [("patches/v1/series", 3)]
    assert said in found[0].message
    assert load().patches == ()


def test_the_same_patch_by_another_spelling_stands_twice(folder: Path) -> None:
    (folder / "series").write_text("0001-x.patch\n../v1/0001-x.patch\n0002-y.patch\n")
    series = load()
    assert codes(series.findings) == {"S502"}
    assert [patch.name for patch in series.patches] == [
        "patches/v1/0001-x.patch",
        "patches/v1/0002-y.patch",
    ]


def test_a_patch_of_another_release(folder: Path) -> None:
    """Its ledger entry is in its own folder, and its number is of its own folder."""
    other = folder.parent / "v0"
    shutil.copytree(GOOD, other)
    (folder / "0001-x.patch").unlink()
    (folder / "series").write_text("0002-y.patch\n../v0/0001-x.patch\n")
    ledger = (folder / "ledger.toml").read_text()
    (folder / "ledger.toml").write_text(ledger[ledger.index('["0002') :])
    series = load()
    assert series.findings == ()
    assert [p.name for p in series.patches][1] == "patches/v0/0001-x.patch"


def test_ascend_stands_on_top_of_capture(folder: Path) -> None:
    (folder / "series").write_text("0001-x.patch\n")
    (folder / "series-ascend").write_text("0002-y.patch\n")
    assert release_in("patches/v1").flavours == ("capture", "ascend")
    assert [p.name[-7:] for p in load("ascend").patches] == ["x.patch", "y.patch"]
    # Listed by the other flavour, so no stray file.
    assert load("capture").findings == ()
    assert len(load("capture").patches) == 1


@pytest.mark.parametrize(
    ("flavour", "said"),
    [("ascend", "series-ascend: no such file"), ("rocm", "no flavour 'rocm'")],
)
def test_no_such_flavour(flavour: str, said: str, folder: Path) -> None:
    assert folder.is_dir()
    with pytest.raises(UsageError, match=said):
        load(flavour)


def test_no_series_and_no_text(folder: Path) -> None:
    (folder / "series").write_bytes(b"\xff\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        load()
    (folder / "series").unlink()
    with pytest.raises(UsageError, match=r"patches/v1/series: no such file"):
        load()


@pytest.mark.parametrize(
    ("header", "lacks"),
    [
        ("", ["Subject", "Upstream", "what it does"]),
        ("Subject: S\n\nUpstream: u\n---\n", ["what it does"]),
        ("Subject:  \n\nText.\nUpstream: u\n---\n", ["Subject"]),
        ("Subject: S\n\nText.\nUpstream:  \n---\n", ["Upstream"]),
        ("\nSubject: S\n\nText.\nUpstream: u\n---\n", ["Subject"]),
    ],
)
def test_headers(header: str, lacks: list[str], folder: Path) -> None:
    patch = folder / "0001-x.patch"
    text = patch.read_text()
    patch.write_text(header + text[text.index("diff --git") :])
    found = [f for f in load().findings if f.code == "S504"]
    assert [(f.path, f.line) for f in found] == [("patches/v1/0001-x.patch", 1)]
    for word in ("Subject", "Upstream", "what it does"):
        assert (word in found[0].message) == (word in lacks)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("0001-x", "0001-z"), "no such patch in the folder"),
        (lambda text: text.replace("0001-x", "0001-z"), "no entry for 0001-x.patch"),
        (lambda text: text.replace("why =", "y ="), '"0001-x.patch".why is missing'),
        (lambda text: text.replace("why =", "wy ="), "wy: unknown key; there is why"),
        (lambda text: text.replace('"Never."', '" "'), "remove_when is missing"),
        (lambda text: text.replace('"Never."', "3"), "remove_when is missing"),
        (lambda text: text.replace('"Never."', "Never"), "no TOML: .*line 5"),
        (lambda _: '"0001-x.patch" = 3\n', "no entry for 0001-x.patch"),
    ],
)
def test_ledgers(change: object, said: str, folder: Path) -> None:
    assert callable(change)
    ledger = folder / "ledger.toml"
    ledger.write_text(change(ledger.read_text()))
    found = [f for f in load().findings if f.code == "S505"]
    assert {f.path for f in found} == {"patches/v1/ledger.toml"}
    assert any(re.search(said, f.message) for f in found)


def test_ledger_missing_or_a_folder(folder: Path) -> None:
    (folder / "ledger.toml").unlink()
    assert "there is no ledger" in {f.message for f in load().findings}
    (folder / "ledger.toml").mkdir()
    assert "Is a directory" in {f.message for f in load().findings}


def test_a_refused_patch_is_left_out_and_told(folder: Path) -> None:
    (folder / "0001-x.patch").write_bytes(b"no diff\n")
    series = load()
    assert has_errors(series.findings)
    assert [p.name for p in series.patches] == ["patches/v1/0002-y.patch"]


def test_unnamed_number(folder: Path) -> None:
    (folder / "0001-x.patch").rename(folder / "x.patch")
    (folder / "series").write_text("x.patch\n0002-y.patch\n")
    assert "S508" in codes(load().findings)


def test_one_number_twice(folder: Path) -> None:
    (folder / "0002-y.patch").rename(folder / "0001-y.patch")
    (folder / "series").write_text("0001-x.patch\n0001-y.patch\n")
    found = [f for f in load().findings if f.code == "S508"]
    assert [(f.line, f.message) for f in found] == [
        (2, "0001-y.patch: stands after 0001-x.patch")
    ]


def test_digest_is_that_of_sha256sum(folder: Path) -> None:
    """As documented: what sha256sum prints for the files in order, hashed again."""
    printed = subprocess.run(
        ["sha256sum", "0001-x.patch", "0002-y.patch"],
        cwd=folder,
        capture_output=True,
        check=True,
    ).stdout
    expected = "sha256:" + hashlib.sha256(printed).hexdigest()
    assert load().digest == expected


def test_digest_tells_order_names_and_bytes_apart() -> None:
    sets = [
        [],
        [("a", b"1")],
        [("b", b"1")],
        [("a", b"2")],
        [("a", b"1"), ("b", b"2")],
        [("b", b"2"), ("a", b"1")],
        [("a", b"1"), ("b", b"")],
    ]
    assert len({patch_set_digest(files) for files in sets}) == len(sets)


def test_digest_does_not_see_the_ledger_or_comments(folder: Path) -> None:
    before = load().digest
    (folder / "series").write_text("# other words\n0001-x.patch\n0002-y.patch\n")
    (folder / "ledger.toml").write_text("")
    assert load().digest == before
    (folder / "0002-y.patch").write_bytes(
        (folder / "0002-y.patch").read_bytes() + b"\n"
    )
    assert load().digest != before
