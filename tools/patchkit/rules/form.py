"""F0xx: the patch file and its sections; H1xx: hunks. Judged without any tree."""

from __future__ import annotations

from patchkit.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("F001", "empty-patch", "The patch file has no bytes."),
    Rule("F002", "no-diff", "The file holds no file section: prose or HTML, no diff."),
    Rule("F003", "encoding", "UTF-16, UTF-32, a byte order mark, or NUL bytes."),
    Rule("F004", "crlf-patch", "The diff's own lines end in CRLF."),
    Rule("F005", "combined-diff", "A merge's combined diff has no single old side."),
    Rule("F006", "binary", "Binary sections cannot be read by a reviewer."),
    Rule("F007", "submodule", "A section changes a submodule (mode 160000)."),
    Rule("F008", "prefix", "Paths stand without a/ and b/ in front."),
    Rule("F009", "unsafe-path", "A path leaves the root or is no plain relative path."),
    Rule("F010", "no-name", "A ---, +++ or diff --git line names no file."),
    Rule("F011", "names-differ", "The lines of one section name different files."),
    Rule("F012", "no-git-header", "A section does not begin with a diff --git line."),
    Rule("F013", "mode", "A mode is neither 100644 nor 100755, or contradicts."),
    Rule("F014", "header-line", "A header line is unknown, doubled or malformed."),
    Rule("F015", "same-file-twice", "Two sections touch one path, or a path below it."),
    Rule("F016", "stray-line", "A line belongs neither to a header nor to a hunk."),
    Rule("F017", "truncated", "The file's last line has no line end: it was cut off."),
    Rule("F018", "no-change", "A section changes nothing, or lacks its hunks."),
    Rule("F019", "index-line", "The index line is malformed or contradicts the kind."),
    Rule("F020", "no-index", "A section has no blob ids.", "warning"),
    Rule("H101", "hunk-header", "An @@ line is malformed."),
    Rule("H102", "count-too-large", "An @@ line declares more lines than follow."),
    Rule("H103", "count-too-small", "An @@ line declares fewer lines than follow."),
    Rule("H104", "zero-context", "A hunk has no context and may land anywhere."),
    Rule(
        "H105",
        "few-context-lines",
        "A hunk has fewer than three lines of context.",
        "warning",
    ),
    Rule("H106", "hunk-order", "A hunk starts before the one above it ends."),
    Rule(
        "H107", "new-start", "The new start is not the old start plus what came before."
    ),
    Rule("H108", "newline-marker", "A no-newline marker stands where no file can end."),
    Rule("H109", "blank-context", "An empty line: blank context that lost its space."),
    Rule("H110", "no-op-hunk", "A hunk adds and removes nothing."),
    Rule("H111", "whole-file", "A created or deleted file's hunk has another side."),
)
