"""Where a port stands, in words: each patch, the figures, what is left to do."""

from __future__ import annotations

from patchkit.port import PortResult


def port_rows(result: PortResult) -> list[str]:
    """The report's lines, what to type next at the end."""
    state = result.state
    rows = [f"{state.source} -> {state.version}, flavour {state.flavour}"]
    rows += [f"  {pick.outcome:9} {pick.name}" for pick in state.picks]
    if not state.picks:
        rows.append("  every patch is there already")
    kinds = [f"{count} {kind}" for kind, count in state.counts.items() if count]
    rows.append(f"hunks: {', '.join(kinds) or 'none'}")
    if result.refresh is not None:
        rows += [f"note: {note}" for note in result.refresh.notes]
        rows += [f"written: {path}" for path in result.refresh.written]
    return [*rows, *left_to_do(result)]


def left_to_do(result: PortResult) -> list[str]:
    """What a person has to do yet, a line each."""
    state = result.state
    again = f"make port FROM={state.source} TO={state.target}"
    if (stopped := result.stopped) is not None:
        return [
            f"conflicts in {', '.join(stopped.conflicts)} of {result.tree}",
            f"resolve them there, git add, then: {again}",
            f"or leave the patch out: git cherry-pick --skip, then: {again}",
            f"what upstream changed: make drift FROM={state.source} TO={state.version}",
        ]
    rows = []
    merged = [pick.stem for pick in state.picks if pick.outcome == "merged"]
    if merged:
        rows.append(f"read what git merged by itself: {', '.join(merged)}")
    if out := [pick.stem for pick in state.picks if pick.outcome == "left out"]:
        rows.append(f"left out: {', '.join(out)}; to carry them: {again}")
    if state.picks:
        rows.append(
            f"say in patches/v{state.target}/ledger.toml how each patch was tested"
        )
    if state.table:
        rows.append("resolve the new images: make pins ARGS=--write")
    return [f"to do: {row}" for row in rows]
