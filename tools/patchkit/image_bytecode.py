"""Bytecode in a base image that would keep running the old code."""

from __future__ import annotations

from collections.abc import Iterable

from patchkit.bytecode import as_checked, is_unchecked
from patchkit.file_state import FileState
from patchkit.image_source import ImageSource
from patchkit.plan_types import PlannedFile


def checked_bytecode(
    files: Iterable[PlannedFile], source: ImageSource
) -> tuple[PlannedFile, ...]:
    """The unchecked-hash ``.pyc`` files of ``files``, made to be checked.

    A layer cannot take a file away without a whiteout, so one flag of it is changed:
    Python then sees that the source is another and compiles it. Time stamps need no
    look: those of the layer are fixed and in no base's bytecode.
    """
    found = []
    listed: dict[str, list[str]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if file.before is None or not name.endswith(".py"):
            continue
        cache = f"{folder}/__pycache__"
        if cache not in listed:
            listed[cache] = source.names(cache)
        stem = name.removesuffix("py")
        for entry in listed[cache]:
            if not (entry.startswith(stem) and entry.endswith(".pyc")):
                continue
            state = source.read(f"{cache}/{entry}")
            if state is not None and is_unchecked(state.data):
                after = FileState(as_checked(state.data), state.mode)
                found.append(PlannedFile(f"{cache}/{entry}", state, after))
    return tuple(found)
