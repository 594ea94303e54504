"""The exceptions a user may see, and the exit code each one stands for."""

from __future__ import annotations

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_BUG = 3


class KitError(Exception):
    """A failure with one clear line; ``hint`` says what to type or do next."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(KitError):
    """Wrong arguments, or data of the kit (``releases.toml``, series) that is wrong."""


class EnvironmentProblem(KitError):
    """The machine lacks something: network, disk, git, an engine, a registry."""


class Refused(KitError):
    """The input was judged and refused; nothing was changed."""

    exit_code = EXIT_REFUSED


class OwnBug(KitError):
    """Two of the kit's own answers differ; nothing may be written on such ground."""

    exit_code = EXIT_BUG
