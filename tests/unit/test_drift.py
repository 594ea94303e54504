"""Each way in which a tree can have drifted has its own rule, and shows its lines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_git import diff, lines

from patchkit.diff_model import Patch
from patchkit.file_state import FileState, MemorySource
from patchkit.findings import Finding
from patchkit.line_index import LineIndex
from patchkit.parse import parse_patch
from patchkit.plan import Plan, Policy, make_plan
from patchkit.side_by_side import table, visible
from patchkit.tree_source import TreeSource

BODY = [
    "import time",
    "",
    "",
    "def step(index):",
    "    started = time.time()",
    "    run(index)",
    "    finish()",
    "    check(index)",
    "    return started",
    "",
    "",
    "def other(index):",
    "    return index",
    "",
    "",
    "def last():",
    "    pass",
]
ADDED = [*BODY[:6], "    note(index)", *BODY[6:]]


def parsed(data: bytes) -> Patch:
    patch = parse_patch(data, "p.patch").patch
    assert patch is not None
    return patch


def plan_of(
    patch: Patch, found: Mapping[str, bytes], policy: Policy = "context"
) -> Plan:
    source = MemorySource({path: FileState(data) for path, data in found.items()})
    return make_plan([patch], source, policy=policy)


def refusal(plan: Plan, code: str) -> Finding:
    assert plan.state == "refused"
    assert plan.files == ()
    errors = [finding for finding in plan.findings if finding.severity == "error"]
    assert [finding.code for finding in errors] == [code]
    return errors[0]


@pytest.fixture
def patch(tmp_path: Path) -> Patch:
    return parsed(diff(tmp_path, {"m.py": lines(*BODY)}, {"m.py": lines(*ADDED)}))


def at(patch: Patch, finding: Finding) -> bytes:
    """The patch's line that the finding points at."""
    return patch.data.split(b"\n")[finding.line - 1]


def test_moved(patch: Patch) -> None:
    found = lines("# one", "# two", *BODY)
    finding = refusal(plan_of(patch, {"m.py": found}), "T210")
    assert "stand at line 6, not at 4 (moved by +2)" in finding.message
    assert at(patch, finding).startswith(b"@@ -4,6 +4,7")


def test_ambiguous(patch: Patch) -> None:
    found = lines("# one", *BODY, *BODY[3:], *BODY[3:])
    finding = refusal(plan_of(patch, {"m.py": found}), "T211")
    assert "3 places: lines 5, 19, 33" in finding.message


def test_one_line_changed(patch: Patch) -> None:
    body = [*BODY]
    body[4] = "    started = time.monotonic()"
    finding = refusal(plan_of(patch, {"m.py": lines(*body)}), "T212")
    assert at(patch, finding) == b"     started = time.time()"
    (row,) = [row for row in finding.detail if " ! " in row]
    left, right = row.split(" ! ")
    assert left.split() == ["5", "started", "=", "time.time()"]
    assert right.split() == ["5", "started", "=", "time.monotonic()"]


def test_two_lines_changed_places(patch: Patch) -> None:
    body = [*BODY]
    body[5], body[6] = body[6], body[5]
    refusal(plan_of(patch, {"m.py": lines(*body)}), "T212")


def test_moved_and_changed(patch: Patch) -> None:
    body = ["# one", "# two", *BODY]
    body[6] = "    started = time.monotonic()"
    finding = refusal(plan_of(patch, {"m.py": lines(*body)}), "T212")
    assert "nearest place: line 6, not 4" in finding.message


def test_file_too_short(patch: Patch) -> None:
    finding = refusal(plan_of(patch, {"m.py": lines("x")}), "T212")
    assert "the file ends after line 1" in finding.message


def test_tabs(patch: Patch) -> None:
    found = lines(*(line.replace("    ", "\t") for line in BODY))
    finding = refusal(plan_of(patch, {"m.py": found}), "T213")
    assert any(r"\trun(index)" in row for row in finding.detail)
    assert "white space only" in finding.message


def test_blanks_at_the_end(patch: Patch) -> None:
    body = [*BODY]
    body[5] += "  "
    finding = refusal(plan_of(patch, {"m.py": lines(*body)}), "T213")
    assert any("run(index)··" in row for row in finding.detail)


@pytest.mark.parametrize("head", [[], ["# one"]])
def test_crlf_tree(patch: Patch, head: list[str]) -> None:
    found = lines(*head, *BODY).replace(b"\n", b"\r\n")
    refusal(plan_of(patch, {"m.py": found}), "T214")


def test_final_newline(tmp_path: Path) -> None:
    old = lines("a", "b", "c")
    patch = parsed(diff(tmp_path, {"m": old}, {"m": lines("a", "B", "c")}))
    finding = refusal(plan_of(patch, {"m": old[:-1]}), "T215")
    assert any("(no newline)" in row for row in finding.detail)


def test_upstream_has_it_elsewhere(patch: Patch) -> None:
    finding = refusal(plan_of(patch, {"m.py": lines("# one", *ADDED)}), "T216")
    assert "upstream already has this hunk at line 8" in finding.message


def test_upstream_has_the_lines_in_other_surroundings(tmp_path: Path) -> None:
    added = ["    if tracing_enabled():", "        record_capture(index)"]
    patch = parsed(
        diff(
            tmp_path,
            {"m.py": lines(*BODY)},
            {"m.py": lines(*BODY[:6], *added, *BODY[6:])},
        )
    )
    body = [line.replace("finish()", "finish(1)") for line in BODY]
    found = lines(*body[:5], *added, *body[5:])
    finding = refusal(plan_of(patch, {"m.py": found}), "T216")
    assert "at line 6, in other surroundings" in finding.message


def test_a_look_alike_is_no_upstream_change(patch: Patch) -> None:
    """Another function has the line already; the hunk's own function has moved."""
    found = lines("# one", *BODY, *ADDED[3:])
    assert plan_of(patch, {"m.py": found}).findings[0].code == "T210"


def test_missing_file(patch: Patch) -> None:
    finding = refusal(plan_of(patch, {"pkg/m.py": lines(*BODY)}), "T201")
    assert "pkg/m.py" in finding.hint


def test_file_to_create_is_there(tmp_path: Path) -> None:
    patch = parsed(diff(tmp_path, {"a": b"x\n"}, {"a": b"x\n", "n.py": b"new\n"}))
    found = {"a": b"x\n", "n.py": b"mine\n"}
    finding = refusal(plan_of(patch, found), "T202")
    assert "other content" in finding.message
    assert any("new" in row and "mine" in row for row in finding.detail)


def test_rename_target_is_there_already(tmp_path: Path) -> None:
    data = lines(*BODY)
    patch = parsed(diff(tmp_path, {"a.py": data}, {"b.py": data}))
    finding = refusal(plan_of(patch, {"a.py": data, "b.py": data}), "T202")
    assert "very same bytes" in finding.message


def test_link(tmp_path: Path, patch: Patch) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "m.py").write_bytes(lines(*BODY))
    (tmp_path / "tree" / "m.py").symlink_to("../m.py")
    plan = make_plan([patch], TreeSource(tmp_path / "tree"), policy="context")
    assert "m.py is a symbolic link" in refusal(plan, "T203").message


def test_folder_in_place_of_a_file(patch: Patch) -> None:
    refusal(plan_of(patch, {"m.py/inner": b""}), "T204")


@pytest.mark.parametrize(("old", "new"), [("x", "x/y"), ("x/y", "x")])
def test_a_file_that_becomes_a_folder_wants_two_calls(
    tmp_path: Path, old: str, new: str
) -> None:
    """What git does in one go is refused, and the hint says how it works."""
    data = diff(tmp_path, {old: lines("old")}, {new: lines("new")})
    found = refusal(plan_of(parsed(data), {old: lines("old")}), "T204")
    assert "apply that first" in found.hint


def test_leftover(tmp_path: Path) -> None:
    patch = parsed(diff(tmp_path, {"a": b"x\n", "o": b"1\n"}, {"a": b"x\n"}))
    finding = refusal(plan_of(patch, {"a": b"x\n", "o": b"1\n2\n"}), "T218")
    assert finding.detail == ("found only: 2",)


def test_ids(patch: Patch) -> None:
    other = {"m.py": lines(*BODY, "more")}
    refusal(plan_of(patch, other, "exact"), "T220")
    change = replace(patch.files[0], new_blob="1" * 40)
    found = {"m.py": lines(*BODY)}
    refusal(plan_of(replace(patch, files=(change,)), found, "exact"), "T221")
    change = replace(patch.files[0], old_blob=None, new_blob=None)
    refusal(plan_of(replace(patch, files=(change,)), found, "exact"), "T222")


def test_mixed(tmp_path: Path) -> None:
    old = {"a": lines(*BODY), "b": lines(*BODY), "c": lines(*BODY)}
    new = dict.fromkeys(old, lines(*ADDED))
    patch = parsed(diff(tmp_path, old, new))
    plan = plan_of(patch, old | {"b": new["b"], "c": lines("# one", *BODY)})
    assert [finding.code for finding in plan.findings] == ["T230", "T210"]
    assert plan.findings[0].detail == (
        "before   a",
        "after    b",
        "neither  c",
    )
    refusal(plan_of(patch, old | {"b": new["b"]}), "T230")


def test_short_context_is_a_warning(patch: Patch) -> None:
    hunk = patch.files[0].hunks[0]
    cut = replace(
        hunk, old_count=5, new_count=6, old_start=5, new_start=5, lines=hunk.lines[1:]
    )
    change = replace(patch.files[0], hunks=(cut,))
    plan = plan_of(replace(patch, files=(change,)), {"m.py": lines(*BODY)})
    assert plan.state == "apply"
    assert [(f.code, f.severity) for f in plan.findings] == [("T219", "warning")]


def test_no_trailing_context_must_end_the_file(patch: Patch) -> None:
    """Git refuses it as well: such a hunk was written for the end of a file."""
    hunk = patch.files[0].hunks[0]
    cut = replace(hunk, old_count=3, new_count=4, lines=hunk.lines[:4])
    change = replace(patch.files[0], hunks=(cut,), old_blob=None, new_blob=None)
    patch = replace(patch, files=(change,))
    refusal(plan_of(patch, {"m.py": lines(*BODY)}), "T217")
    assert plan_of(patch, {"m.py": lines(*BODY[:6])}).state == "apply"


def test_bytes_no_terminal_should_see() -> None:
    assert visible(b"a\tb\x1b[2J\xff\x0c \n") == r"a\tb\x1b[2J\xff\f·"
    assert visible("\u2028é".encode()) == r"\u2028é (no newline)"


def test_tables_are_readable() -> None:
    wide = ("漢" * 60 + "\n").encode()
    long = [b"x" * 150 + b"%d\n" % number for number in range(30)]
    other = [*long[:15], b"x" * 150 + b"other\n", *long[16:]]
    for rows in (
        table([wide], 1, [b"\xff" * 99], 1),
        table(long, 1, other, 100_001),
    ):
        assert max(map(len, rows)) <= 96
    assert any("15" in row and "other" in row for row in rows)
    assert sum("equal lines" in row for row in rows) == 2


def test_many_hunks_on_a_long_file_are_explained_in_seconds() -> None:
    """Thirty hunks on 300,000 lines took 40 seconds: each looked through all again."""
    old = [b"line %d is %d\n" % (n % 1000, n // 7) for n in range(300_000)]
    text = [b"diff --git a/m b/m\n--- a/m\n+++ b/m\n"]
    for start in range(1000, 300_000, 10_000):
        text.append(b"@@ -%d,7 +%d,7 @@\n" % (start + 1, start + 1))
        body = [b" " + line for line in old[start : start + 7]]
        body[3:4] = [b"-" + old[start + 3], b"+new\n"]
        text += body
    found = list(old)
    for start in range(1000, 300_000, 10_000):
        found[start + 3] = b"drift\n"
    found.insert(500, b"inserted\n")
    patch = parsed(b"".join(text))
    source = MemorySource({"m": FileState(b"".join(found))})
    began = time.perf_counter()
    plan = make_plan([patch], source, policy="context")
    assert time.perf_counter() - began < 8
    assert [finding.code for finding in plan.findings] == ["T212"] * 30


def test_of_a_long_table_the_first_difference_is_shown() -> None:
    """difflib takes minutes for lines by the hundred thousand."""
    old = [b"%d\n" % (n % 100) for n in range(100_000)]
    new = [*old[:5000], b"x\n", *old[5000:7000], b"y\n", *old[7001:]]
    began = time.perf_counter()
    rows = table(old, 1, new, 1)
    assert time.perf_counter() - began < 2
    assert rows[1].endswith("… 4998 equal lines")
    assert ">   5001 x" in rows[4]
    assert rows[-1].endswith("more lines, not compared")


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n"]), max_size=12)


@given(LINES, LINES.filter(bool))
def test_an_index_finds_what_a_search_finds(held: list[bytes], wanted) -> None:
    size = len(wanted)
    naive = [n for n in range(len(held) - size + 1) if held[n : n + size] == wanted]
    assert LineIndex(held).find(wanted) == naive
