"""The strict reader: git's own diffs are read as git means them; damage is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_git import diffs, git

from patchkit import second_reader
from patchkit.diff_model import FileChange, Patch
from patchkit.diff_paths import unsafe_reason
from patchkit.errors import OwnBug, UsageError
from patchkit.file_state import EXECUTABLE, REGULAR, FileState
from patchkit.parse import parse_patch, read_patch

SLOW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LINES = st.sampled_from(
    [
        *(b"a", b"b", b"", b"  x = 1", b"\tx", b"-- y", b"++ z", b"@@ -1 +1 @@"),
        *(b"diff --git a/x b/x", b"\xe4\xf6", b"\x0cform", b"a\rb", b"\\ No newline"),
        *("\u2028".encode(), b"--- a/x", b"+++ b/x", b"-- ", b"index 1..2"),
    ]
)
TEXT = st.lists(LINES, max_size=30).map(lambda lines: b"\n".join(lines) + b"\n")
DATA = st.one_of(TEXT, TEXT.map(lambda text: text[:-1]), st.just(b""))
STATE = st.builds(FileState, DATA, st.sampled_from([REGULAR, EXECUTABLE]))
NAMES = st.sampled_from(
    [
        "m.py",
        "pkg/m.py",
        "pkg/with space.py",
        "pkg/caf\u00e9.py",
        'q"uote.py',
        "tab\there",
    ]
)
TREES = st.dictionaries(NAMES, STATE, max_size=4)


def accepted(data: bytes) -> Patch:
    result = parse_patch(data, "p.diff")
    assert result.patch is not None, [str(finding) for finding in result.findings]
    return result.patch


def codes(data: bytes) -> list[str]:
    return [finding.code for finding in parse_patch(data, "p.diff").findings]


def rebuilt(change: FileChange, old: bytes) -> bytes:
    """The new bytes by the model's hunks, the plainest way there is."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+", old)
    out: list[bytes] = []
    at = 0
    for hunk in change.hunks:
        start = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        out += lines[at:start]
        assert tuple(lines[start : start + hunk.old_count]) == hunk.old_lines
        out += hunk.new_lines
        at = start + hunk.old_count
    return b"".join([*out, *lines[at:]])


@SLOW
@given(before=TREES, after=TREES)
def test_reads_what_git_writes(tmp_path_factory, before, after) -> None:
    [data] = diffs(tmp_path_factory.mktemp("r"), [before, after])
    if not data:
        return
    patch = accepted(data)
    gone = {c.old_path for c in patch.files if c.kind in ("delete", "rename")}
    tree = {path: state for path, state in before.items() if path not in gone}
    for change in patch.files:
        if change.new_path is not None:
            old = before.get(change.old_path or "", FileState(b""))
            mode = change.new_mode or old.mode
            tree[change.new_path] = FileState(rebuilt(change, old.data), mode)
    assert tree == after


@SLOW
@given(before=TREES, after=TREES)
def test_counts_are_gits_own(tmp_path_factory, before, after) -> None:
    folder = tmp_path_factory.mktemp("r")
    [data] = diffs(folder, [before, after])
    if not data:
        return
    stat = git(folder, "diff", "--numstat", "--text", "-M", "-z", "c0", "c1")
    counted = sum(int(n) for pair in re.findall(rb"(\d+)\t(\d+)\t", stat) for n in pair)
    lines = [
        entry
        for change in accepted(data).files
        for hunk in change.hunks
        for entry in hunk.lines
    ]
    assert sum(entry.kind != " " for entry in lines) == counted


OLD = b"".join(b"line %d\n" % number for number in range(1, 61))


def edits(*numbers: int) -> bytes:
    return b"".join(
        b"line %d\nadded %d\n" % (n, n) if n in numbers else b"line %d\n" % n
        for n in range(1, 61)
    )


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    before = {"a.py": FileState(OLD), "b.py": FileState(OLD), "c.py": FileState(OLD)}
    after = {
        "a.py": FileState(edits(10, 30, 60)),
        "b.py": FileState(edits(20)),
        "d.py": FileState(b"new\nfile\n"),
    }
    [data] = diffs(tmp_path_factory.mktemp("r"), [before, after])
    assert accepted(data)
    return data


def test_every_cut_is_refused_or_whole(good: bytes) -> None:
    """A patch cut at any byte is refused, unless what is left is whole sections."""
    whole = {len(good)}
    hunk_ends = [m.start() for m in re.finditer(rb"^(@@|diff --git) ", good, re.M)]
    whole |= set(hunk_ends)
    for cut in range(len(good)):
        result = parse_patch(good[:cut], "p.diff")
        if result.patch is not None:
            assert cut in whole, good[:cut][-60:]


@pytest.mark.parametrize("field", range(4))
@pytest.mark.parametrize("by", [-1, 1])
def test_every_header_number_counts(good: bytes, field: int, by: int) -> None:
    """Any number of any @@ line, one off: refused at that line."""
    for match in re.finditer(rb"^@@ -(\d+),(\d+) \+(\d+),(\d+) @@", good, re.M):
        numbers = [int(number) for number in match.groups()]
        numbers[field] += by
        if min(numbers) < 0:
            continue
        header = b"@@ -%d,%d +%d,%d @@" % tuple(numbers)
        damaged = good[: match.start()] + header + good[match.end() :]
        line = good.count(b"\n", 0, match.start()) + 1
        result = parse_patch(damaged, "p.diff")
        assert result.patch is None
        assert any(abs(f.line - line) <= 12 for f in result.findings)


@pytest.mark.parametrize("kind", [b" ", b"+", b"-"])
def test_a_line_more_or_less_is_refused(good: bytes, kind: bytes) -> None:
    lines = good.split(b"\n")
    for at, line in enumerate(lines):
        header = line.startswith((b"--- ", b"+++ "))
        if not line.startswith(kind) or header:
            continue
        for damaged in (lines[:at] + lines[at + 1 :], [*lines[: at + 1], *lines[at:]]):
            assert parse_patch(b"\n".join(damaged), "p.diff").patch is None


@pytest.mark.parametrize(("start", "wanted"), [(4, ["H106"]), (5, [])])
def test_hunks_may_touch_and_not_overlap(start: int, wanted: list[str]) -> None:
    data = (
        b"diff --git a/m.py b/m.py\nindex 1111111..2222222 100644\n--- a/m.py\n"
        b"+++ b/m.py\n@@ -1,4 +1,5 @@\n+x\n a\n b\n c\n d\n"
        b"@@ -%d,4 +%d,5 @@\n e\n f\n g\n+y\n h\n" % (start, start + 1)
    )
    assert codes(data) == wanted


def test_a_mail_is_read(good: bytes) -> None:
    mail = b"From 0123 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] x\n\nWhy.\n---\n\n"
    patch = accepted(mail + good + b"-- \n2.39.5\n\n")
    assert patch.header == mail
    assert len(patch.files) == 4


def test_prose_may_quote_a_marker(good: bytes) -> None:
    """unidiff would take such a line for a file name; the prose is not its to read."""
    assert accepted(b"Subject: x\n\n--- is what divides\n\n" + good)


def test_stripped_context_is_told_from_a_wrong_count() -> None:
    data = (
        b"diff --git a/m.py b/m.py\nindex 1111111..2222222 100644\n--- a/m.py\n"
        b"+++ b/m.py\n@@ -3,6 +3,7 @@\n a\n b\n c\n+d\n e\n"
    )
    [finding] = parse_patch(data, "p.diff").findings
    assert (finding.code, finding.line) == ("H102", 5)
    assert "declared -6 +7 lines, counted -4 +5" in finding.message
    assert "2 blank context lines stripped" in finding.hint


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-8-sig"])
def test_other_encodings_are_refused(good: bytes, encoding: str) -> None:
    assert codes(good.decode().encode(encoding)) == ["F003"]


def test_crlf_in_one_section_only_is_refused(good: bytes) -> None:
    first, mark, rest = good.partition(b"diff --git a/b.py")
    assert codes(first + (mark + rest).replace(b"\n", b"\r\n")) == ["F004"]


@pytest.mark.parametrize(
    "path",
    [
        *("../x.py", "a/../../x.py", "/etc/x.py", "a//x.py", "./x.py", "a/./x.py"),
        *(".git/hooks/x", "a/.GIT/config", "c:/x.py", "a\\\\x.py"),
        *(".vllm-patchkit/journal.json", ".VLLM-patchkit", f"a/{'x' * 256}"),
        "deep/" * 900 + "x.py",
    ],
)
def test_paths_that_leave_the_root(good: bytes, path: str) -> None:
    shown = f'"a/{path}"' if "\\" in path else f"a/{path}"
    new = shown.replace("a/", "b/", 1)
    data = (
        f"diff --git {shown} {new}\nindex 1111111..2222222 100644\n--- {shown}\n"
        f"+++ {new}\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert codes(data.encode()) == ["F009"]


@pytest.mark.parametrize(
    "header",
    [
        *(f"@@ -{'9' * 5000} +1 @@", f"@@ -1,{'9' * 5000} +1 @@"),
        *(f"@@ -1 +{'9' * 5000} @@", f"@@ -1 +1,{'9' * 30} @@"),
    ],
)
def test_numbers_of_no_file(header: str) -> None:
    """More digits than any line number has, and than Python reads."""
    data = f"diff --git a/m b/m\n--- a/m\n+++ b/m\n{header}\n-a\n+b\n"
    assert "H101" in codes(data.encode())


@pytest.mark.parametrize("kind", ["new", "deleted"])
@pytest.mark.parametrize("paths", [("x", "x/y"), ("x/y/z", "x")])
def test_no_path_is_a_file_and_a_folder(kind: str, paths: tuple[str, ...]) -> None:
    data = "".join(
        f"diff --git a/{path} b/{path}\n{kind} file mode 100644\n"
        + (
            f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
            if kind == "new"
            else f"--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        )
        for path in paths
    )
    assert "F015" in codes(data.encode())


def test_paths_that_may_be_written() -> None:
    for path in (b"a/.vllm-patchkit/x", b".vllm-patchkit.txt", b"a/" + b"x" * 255):
        assert unsafe_reason(path) == ""


def test_several_faults_are_all_told(good: bytes) -> None:
    damaged = good.replace(b"+added 20\n", b"").replace(b"+added 10\n", b"")
    found = parse_patch(damaged, "p.diff").findings
    assert [finding.code for finding in found] == ["H102", "H102"]


def test_unreadable_files_are_no_findings(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such patch file"):
        read_patch(tmp_path / "none.diff")
    with pytest.raises(UsageError, match="is a directory"):
        read_patch(tmp_path)


def test_a_second_reader_that_differs_stops_everything(good, monkeypatch) -> None:
    """Blind the second reader by hand: nothing is judged."""
    monkeypatch.setattr(second_reader, "_lines_of", lambda _section: [])
    with pytest.raises(OwnBug, match="unidiff reads it differently"):
        parse_patch(good, "p.diff")


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_no_input_makes_it_stumble(data: bytes) -> None:
    result = parse_patch(data, "p.diff")
    assert (result.patch is None) == any(f.severity == "error" for f in result.findings)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_damage_makes_it_stumble(good: bytes, data) -> None:
    at = data.draw(st.integers(0, len(good)))
    drop = data.draw(st.integers(0, 30))
    put = data.draw(st.binary(max_size=12))
    result = parse_patch(good[:at] + put + good[at + drop :], "p.diff")
    assert (result.patch is None) == any(f.severity == "error" for f in result.findings)
