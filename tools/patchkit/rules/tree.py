"""Rules on a patch and a tree: does it fit, strictly, where it says it does."""

from __future__ import annotations

from patchkit.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("T201", "file-missing", "A file the patch changes is in the tree."),
    Rule("T202", "file-exists", "Where the patch creates a file there is none."),
    Rule("T203", "path-through-link", "No component of a path is a symbolic link."),
    Rule("T204", "not-a-regular-file", "A path names a regular file, or nothing."),
    Rule("T205", "mode-differs", "The executable bit is the one the patch states."),
    Rule("T210", "context-moved", "A hunk's old lines stand at its declared line."),
    Rule(
        "T211",
        "context-ambiguous",
        "A hunk off its declared line is never put at one of several places.",
    ),
    Rule("T212", "context-differs", "A hunk's old lines are the tree's, byte by byte."),
    Rule("T213", "white-space-differs", "Old lines differ in no tab, no blank."),
    Rule("T214", "line-ends-differ", "Patch and tree have the same line ends."),
    Rule("T215", "final-newline-differs", "Both have, or lack, the last line's end."),
    Rule("T216", "upstream-has-it", "The tree does not have the change elsewhere."),
    Rule(
        "T217",
        "not-at-end",
        "A hunk without trailing context stands at the end of its file.",
    ),
    Rule("T218", "leftover", "A deleted file holds what the patch removes, no more."),
    Rule(
        "T219",
        "short-context",
        "A hunk has three lines of context, or as many as the file has.",
        "warning",
    ),
    Rule("T220", "file-before-differs", "The file before has the index line's id."),
    Rule("T221", "file-after-differs", "The file after has the index line's id."),
    Rule("T222", "no-blob-id", "Policy exact has an index line to check against."),
    Rule(
        "T230", "mixed-state", "Of one patch, every file is before or every one after."
    ),
    Rule("T231", "out-of-order", "A patch is in the tree only with those before it."),
    Rule("T232", "ambiguous-state", "A tree is either before or after a patch."),
    Rule("T233", "changed-since", "A patched file is as the patches left it."),
    Rule(
        "T234",
        "contradiction",
        "No patch is given twice, and none takes back another of the same call.",
    ),
)
