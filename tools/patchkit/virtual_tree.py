"""Files as they stand at one point of a series: a source, and results laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from patchkit.blob import NULL_ID, blob_id, blob_id_sha256
from patchkit.file_state import FileState, Source, UnsafePath
from patchkit.line_index import LineIndex
from patchkit.plan_types import Origin

Origins = tuple[Origin | None, ...]


@dataclass(frozen=True)
class Entry:
    """A file of an image; ``origins`` has one entry a line, see ``PlannedFile``.

    ``home`` is the path it had in the source, where renames took it elsewhere.
    """

    state: FileState
    lines: tuple[bytes, ...]
    origins: Origins
    home: str | None = None

    @cached_property
    def blob(self) -> str:
        """The blob id of the bytes, worked out once."""
        return blob_id(self.state.data)

    @cached_property
    def index(self) -> LineIndex:
        """Where its lines stand."""
        return LineIndex(self.lines)

    def id_like(self, stated: str) -> str:
        """The blob id in the object format that ``stated`` is of."""
        return self._blob_sha256 if len(stated) > len(NULL_ID) else self.blob

    @cached_property
    def _blob_sha256(self) -> str:
        return blob_id_sha256(self.state.data)

    def has_id(self, stated: str) -> bool:
        """Tell whether an ``index`` line's id, shortened or not, names these bytes."""
        stated = stated.lower()
        if not stated:
            return False
        if self.id_like(stated).startswith(stated):
            return True
        # A shortened one does not tell which object format it is of.
        return len(stated) < len(NULL_ID) and self._blob_sha256.startswith(stated)


def split_lines(data: bytes) -> tuple[bytes, ...]:
    """Split on ``\\n`` only, line ends kept: form feed and U+2028 end no line."""
    parts = data.split(b"\n")
    last = parts.pop()
    lines = [part + b"\n" for part in parts]
    return (*lines, last) if last else tuple(lines)


def new_entry(state: FileState) -> Entry:
    """Return an entry none of whose lines comes from a patch."""
    lines = split_lines(state.data)
    return Entry(state, lines, (None,) * len(lines))


class VirtualTree:
    """A tree that is never written: ``with_results`` gives the next one.

    The source is read once a path, however many images lie over it.
    """

    def __init__(self, source: Source) -> None:
        """Begin with the files of ``source`` as they are."""
        self.source = source
        self._cache: dict[str, Entry | UnsafePath | None] = {}
        self._over: dict[str, Entry | None] = {}

    def read(self, path: str) -> Entry | None:
        """Return the file at ``path`` or None; raises UnsafePath as a source does."""
        if path in self._over:
            return self._over[path]
        for parent in PurePosixPath(path).parents:
            if self._over.get(str(parent)) is not None:
                raise UnsafePath(path, str(parent), "parent-is-file")
        inside = path + "/"
        if any(
            entry is not None and other.startswith(inside)
            for other, entry in self._over.items()
        ):
            raise UnsafePath(path, path, "not-regular")
        return self.found(path)

    def found(self, path: str) -> Entry | None:
        """Return the file as the source has it, whatever lies over it."""
        if path not in self._cache:
            try:
                state = self.source.read(path)
                self._cache[path] = None if state is None else new_entry(state)
            except UnsafePath as error:
                self._cache[path] = error
        entry = self._cache[path]
        if isinstance(entry, UnsafePath):
            raise entry
        return entry

    def with_results(self, results: Mapping[str, Entry | None]) -> VirtualTree:
        """Return an image with ``results`` on top; None removes a file."""
        image = VirtualTree(self.source)
        image._cache = self._cache
        image._over = {**self._over, **results}
        return image
