"""S5xx: a release's series, its patch headers and its ledger."""

from __future__ import annotations

from patchkit.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("S501", "series-line", "A series line names no patch of this project."),
    Rule("S502", "series-twice", "A patch stands twice in the series."),
    Rule("S503", "unlisted", "A patch file of the folder is in no series.", "warning"),
    Rule("S504", "header", "A patch header lacks its subject, text or Upstream line."),
    Rule("S505", "ledger", "The ledger and the series name different patches."),
    Rule("S506", "full-index", "A patch of a series lacks full blob ids."),
    Rule("S507", "context-lines", "A hunk of a series lacks its lines of context."),
    Rule("S508", "patch-number", "Patches stand in the order of their numbers."),
)
