"""A RECORD follows what changes, in the form that pip itself writes and reads."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_git import diffs

from patchkit.apply_command import Request, run
from patchkit.file_state import FileState
from patchkit.plan_types import PlannedFile
from patchkit.wheel_record import plan_record

RECORD = "x-1.dist-info/RECORD"
OTHERS = [["pkg/z.py", "sha256=AAAA", "9"], [RECORD, "", ""]]


def row(path: str, data: bytes) -> list[str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    return [path, "sha256=" + digest.rstrip("="), str(len(data))]


def written(rows: list[list[str]], end: str = "\n") -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator=end).writerows(rows)
    return out.getvalue().encode()


def put(root: Path, data: bytes) -> Path:
    (root / RECORD).parent.mkdir(exist_ok=True)
    (root / RECORD).write_bytes(data)
    return root


def planned(path: str, before: bytes | None, after: bytes | None) -> PlannedFile:
    def state(data):
        return None if data is None else FileState(data)

    return PlannedFile(path, state(before), state(after))


def rewrite(root: Path, *files: PlannedFile, revert: bool = False) -> bytes:
    plan = plan_record(files, root, revert=revert)
    if not plan.files:
        return (root / RECORD).read_bytes()
    [file] = plan.files
    assert file.path == RECORD
    assert file.before is not None
    assert file.after is not None
    assert file.before.data == (root / RECORD).read_bytes()
    return file.after.data


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("path", ["pkg/a.py", "pkg/a,b.py", 'pkg/a"b.py', "pkg/ü.py"])
def test_changed_and_created_there_and_back(tmp_path: Path, path, end) -> None:
    before = written([row(path, b"1"), *OTHERS], end)
    root = put(tmp_path, before)
    after = rewrite(root, planned(path, b"1", b"2"), planned("pkg/new.py", None, b"n"))
    assert after == written([row(path, b"2"), *OTHERS, row("pkg/new.py", b"n")], end)
    put(root, after)
    back = (planned(path, b"2", b"1"), planned("pkg/new.py", b"n", None))
    assert rewrite(root, *back, revert=True) == before


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_line_of_a_removed_file_stays_and_is_true_again(
    tmp_path: Path, at: int
) -> None:
    """Wherever it is: pip passes over files that are gone."""
    rows = list(OTHERS)
    rows.insert(at, row("pkg/a.py", b"1"))
    before = written(rows)
    root = put(tmp_path, before)
    after = rewrite(root, planned("pkg/a.py", b"1", None), planned("z.py", None, b""))
    assert after == written([*rows, row("z.py", b"")])
    put(root, after)
    back = (planned("pkg/a.py", None, b"1"), planned("z.py", b"", None))
    assert rewrite(root, *back, revert=True) == before


@pytest.mark.parametrize(
    "data",
    [
        b'"pkg/a.py",sha256=AAAA,1\n',
        b"pkg/a.py,md5=AAAA,1\n",
        b"pkg/a.py,,\n",
        b"pkg/a.py,sha256=AAAA,1",
    ],
)
def test_a_form_that_could_not_come_back_is_left_and_told(tmp_path: Path, data) -> None:
    root = put(tmp_path, data)
    plan = plan_record([planned("pkg/a.py", b"1", b"2")], root, revert=False)
    assert plan.files == ()
    [note] = plan.notes
    assert note.startswith(f"{RECORD}: 1 lines")
    assert "pkg/a.py" in note


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"other.py,,\n", b'"open\n', b"\0\xff\n" * 3, b"pkg/a.py\rx,,\n"],
)
def test_other_distributions_and_no_records_are_left(tmp_path: Path, data) -> None:
    root = put(tmp_path, data)
    plan = plan_record([planned("pkg/a.py", b"1", b"2")], root, revert=False)
    assert plan.files == ()
    assert plan.notes == ()


def test_a_bare_cr_hides_no_other_line(tmp_path: Path) -> None:
    odd = b"pkg/o\rdd.py,,\n"
    root = put(tmp_path, odd + written([row("pkg/a.py", b"1")]))
    after = rewrite(root, planned("pkg/a.py", b"1", b"2"))
    assert after == odd + written([row("pkg/a.py", b"2")])


def test_a_record_that_the_patches_change_is_theirs(tmp_path: Path) -> None:
    """Through a whole run: it was planned twice, and the patch's lines were lost."""
    before = {
        "pkg/a.py": FileState(b"1\n"),
        RECORD: FileState(written([row("pkg/a.py", b"1\n"), *OTHERS])),
    }
    changed = written([row("pkg/a.py", b"2\n"), *OTHERS, ["more", "", ""]])
    after = {"pkg/a.py": FileState(b"2\n"), RECORD: FileState(changed)}
    (tmp_path / "git").mkdir()
    [data] = diffs(tmp_path / "git", [before, after])
    (tmp_path / "p.patch").write_bytes(data)
    root = tmp_path / "site"
    for path, state in before.items():
        (root / path).parent.mkdir(parents=True)
        (root / path).write_bytes(state.data)
    names = (str(tmp_path / "p.patch"),)
    outcome = run(Request(root, patches=names))
    assert (outcome.state, outcome.beside) == ("applied", ())
    assert "since they change it" in outcome.notes[0]
    assert (root / RECORD).read_bytes() == changed
    assert run(Request(root, "revert", patches=names)).state == "reverted"
    assert (root / RECORD).read_bytes() == before[RECORD].data


def test_links_and_folders_in_place_of_records_stop_no_one(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(written([row("pkg/a.py", b"1")]))
    site = tmp_path / "site"
    for name in ("a-1", "b-1", "c-1"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (site / "a-1.dist-info/RECORD").symlink_to(outside)
    (site / "b-1.dist-info/RECORD").mkdir()
    (site / "d-1.dist-info").symlink_to(tmp_path)
    assert (
        plan_record([planned("pkg/a.py", b"1", b"2")], site, revert=False).files == ()
    )


CONTENT = st.binary(max_size=4)
TREES = st.dictionaries(st.sampled_from(["a", "b,c", "d", "e"]), CONTENT, max_size=4)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(before=TREES, after=TREES, at=st.integers(0, 4), end=st.sampled_from("\n\r"))
def test_any_change_comes_back(tmp_path_factory, before, after, at, end) -> None:
    rows = [row(path, data) for path, data in before.items()]
    rows[at:at] = [["kept", "sha256=x", "1"], [RECORD, "", ""]]
    line_end = "\r\n" if end == "\r" else "\n"
    data = written(rows, line_end)
    root = put(tmp_path_factory.mktemp("site"), data)
    paths = sorted({*before, *after})
    there = [planned(path, before.get(path), after.get(path)) for path in paths]
    back = [planned(path, after.get(path), before.get(path)) for path in paths]
    now = rewrite(root, *there)
    put(root, now)
    if now != data:
        listed = {found[0]: found for found in csv.reader(io.StringIO(now.decode()))}
        for path in after:
            assert listed[path] == row(path, after[path])
    assert rewrite(root, *back, revert=True) == data
