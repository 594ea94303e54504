"""A reversed patch is what git writes for the way back."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from real_git import Tree, diffs, histories

from patchkit.diff_model import Patch
from patchkit.file_state import FileState, MemorySource
from patchkit.parse import parse_patch
from patchkit.plan import make_plan
from patchkit.reverse import reverse_patch


def parsed(data: bytes) -> Patch:
    patch = parse_patch(data, "p.patch").patch
    assert patch is not None
    return patch


@settings(max_examples=40, deadline=None)
@given(histories(most=1))
def test_there_and_back(trees: list[Tree]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        there, back = diffs(Path(folder), [*trees, trees[0]])
    patch = parsed(there)
    assert reverse_patch(reverse_patch(patch)) == patch
    plans = [
        make_plan([each], MemorySource(trees[1]), policy="exact")
        for each in (reverse_patch(patch), parsed(back))
    ]
    assert plans[0].state == plans[1].state == "apply"
    for plan in plans:
        tree = dict(trees[1])
        for file in plan.files:
            tree.pop(file.path, None)
            if file.after is not None:
                tree[file.path] = file.after
        assert tree == trees[0]


def test_hunks_turn_line_by_line(tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % number for number in range(9))
    new = text.replace(b"line 4\n", b"four\nand more\n")
    trees: list[Tree] = [{"a": FileState(text)}, {"a": FileState(new)}]
    there, back = diffs(tmp_path, [*trees, trees[0]])
    ours, gits = reverse_patch(parsed(there)).files[0], parsed(back).files[0]
    assert (ours.old_blob, ours.new_blob) == (gits.old_blob, gits.new_blob)
    (mine,), (theirs,) = ours.hunks, gits.hunks
    assert mine.old_lines == theirs.old_lines
    assert mine.new_lines == theirs.new_lines
    assert (mine.old_start, mine.old_count) == (theirs.old_start, theirs.old_count)
    assert [line.kind for line in mine.lines] == [line.kind for line in theirs.lines]
