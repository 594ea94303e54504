"""The rules by which a reader of capture traces, TraceLens, finds and keys them.

Written from its documented behaviour, and used as the measure of what is written.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANNOTATION = re.compile(r"capture_(\d+)_(.*)")
MERGED_MODES = ("FULL", "PIECEWISE")


@dataclass(frozen=True)
class Trace:
    """One file of the folder, as the reader sees it."""

    name: str
    events: tuple[dict[str, Any], ...]

    @property
    def annotations(self) -> list[tuple[int, str]]:
        """Token count and mode of each annotation of a capture."""
        found = []
        for event in self.events:
            match = ANNOTATION.fullmatch(event.get("name", ""))
            if match and event.get("cat") == "user_annotation":
                found.append((int(match[1]), match[2]))
        return found

    @property
    def names(self) -> set[str]:
        """The names of all events."""
        return {event.get("name", "") for event in self.events}

    def span(self, name: str) -> tuple[float, float]:
        """Begin of the first and end of the last event of that name."""
        spans = [
            (event["ts"], event["ts"] + event["dur"])
            for event in self.events
            if event.get("name") == name and event.get("ph") == "X"
        ]
        return min(begin for begin, _ in spans), max(end for _, end in spans)


def folder_of(profiler_dir: Path) -> Path:
    """The folder that is read."""
    return profiler_dir / "capture_traces"


def read_index(profiler_dir: Path) -> list[dict[str, Any]]:
    """``execution_details.json``; a reader needs these three of each entry."""
    index = json.loads((folder_of(profiler_dir) / "execution_details.json").read_text())
    assert isinstance(index, list)
    for entry in index:
        assert isinstance(entry["file"], str)
        assert type(entry["batch_size"]) is int
        assert isinstance(entry["mode"], str)
    return index


def read_trace(path: Path) -> Trace:
    """One trace, compressed or not."""
    data = path.read_bytes()
    if path.name.endswith(".gz"):
        data = gzip.decompress(data)
    return Trace(path.name, tuple(json.loads(data)["traceEvents"]))


def read_traces(profiler_dir: Path) -> dict[str, Trace]:
    """Every trace that lies in the folder, by file name."""
    folder = folder_of(profiler_dir)
    names = {
        path.name
        for path in folder.iterdir()
        if path.name.endswith((".json", ".json.gz"))
    } - {"execution_details.json"}
    return {name: read_trace(folder / name) for name in names}


def merged(profiler_dir: Path) -> dict[str, str]:
    """The file behind each ``{batch}_{mode}``; a later one replaces an earlier one."""
    return {
        f"{entry['batch_size']}_{entry['mode']}": entry["file"]
        for entry in read_index(profiler_dir)
        if entry["mode"] in MERGED_MODES
    }
