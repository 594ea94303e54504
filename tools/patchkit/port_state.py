"""A port under way: what is being carried where, kept in the work tree's ``.git``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from patchkit.cache import whole_file
from patchkit.errors import Refused

FILE = "vllm-patchkit-port.json"

Outcome = Literal[
    "waiting",
    "stopped",  # with conflicts in the work tree
    "exact",
    "moved",
    "merged",
    "resolved",  # by a person, after a conflict
    "upstream",  # nothing was left of it
    "left out",
]


@dataclass
class Pick:
    """One patch of the series that is carried: its commit there, and what came of it.

    ``head`` is HEAD before it was tried.
    """

    commit: str
    name: str
    stem: str
    subject: str
    fit: str
    outcome: Outcome = "waiting"
    head: str = ""
    conflicts: list[str] = field(default_factory=list)


@dataclass
class PortState:
    """A port from one release's series to another release.

    ``table`` is the new release's text for ``releases.toml``, "" when it is there
    already; ``counts`` how many hunks fit in which way.
    """

    source: str
    target: str
    version: str
    flavour: str
    table: str
    counts: Mapping[str, int]
    picks: list[Pick]


def read_state(tree: Path) -> PortState | None:
    """The port under way in a tree, None without one; Refused when it is damaged."""
    file = tree / ".git" / FILE
    try:
        data = json.loads(file.read_bytes())
        picks = [Pick(**each) for each in data.pop("picks")]
        return PortState(**data, picks=picks)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise Refused(
            f"{file}: damaged", hint="remove the tree, and port again"
        ) from None


def write_state(tree: Path, state: PortState) -> None:
    """Keep the state, in one step."""
    with whole_file(tree / ".git" / FILE) as partial:
        text = json.dumps(asdict(state), indent=2) + "\n"
        partial.write_text(text, encoding="utf-8")


def end_state(tree: Path) -> None:
    """The port is done."""
    (tree / ".git" / FILE).unlink(missing_ok=True)
