"""Where the user's pip is set up to fetch packages from: indexes, CA file, proxy."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass

from patchkit.errors import EnvironmentProblem

CONNECT_SECONDS = 15.0
READ_SECONDS = 60.0  # between two reads, not for the whole file
_TRUE = ("1", "true", "yes", "on", "t", "y")


@dataclass(frozen=True)
class IndexSettings:
    """What pip would use: index URLs in order, local folders, how to connect.

    ``urls`` is empty when the user forbids every index (``no-index``). ``timeout`` is
    in seconds, None where the user set none.
    """

    urls: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout: float | None = None

    @property
    def timeouts(self) -> tuple[float, float]:
        """Seconds to connect, and between two reads."""
        if self.timeout is None:
            return CONNECT_SECONDS, READ_SECONDS
        return self.timeout, self.timeout


def read_settings(environment: Mapping[str, str] | None = None) -> IndexSettings:
    """pip's own settings: its files through ``pip config list``, and the environment.

    Without pip only the environment counts. As in pip, an empty value is no value.
    Raises EnvironmentProblem when pip cannot read its files.
    """
    env = dict(os.environ if environment is None else environment)
    values = {
        key.removeprefix("PIP_").lower().replace("_", "-"): value
        for key, value in env.items()
        if key.startswith("PIP_") and value
    }
    for key, value in _config_files(env).items():
        values.setdefault(key, value)
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    urls = [values.get("index-url", PYPI_SIMPLE_ENDPOINT)]
    urls += values.get("extra-index-url", "").split()
    if values.get("no-index", "").lower() in _TRUE:
        urls = []
    timeout = None
    with contextlib.suppress(ValueError):
        timeout = float(values.get("default-timeout") or values.get("timeout") or "")
    return IndexSettings(
        urls=tuple(urls),
        find_links=tuple(values.get("find-links", "").split()),
        cert=values.get("cert"),
        client_cert=values.get("client-cert"),
        proxy=values.get("proxy"),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        timeout=timeout if timeout and timeout > 0 else None,
    )


def _config_files(env: Mapping[str, str]) -> dict[str, str]:
    """Values of pip's files; a command's own section wins over ``global``."""
    # Without the PIP_* of options: pip reads no file when one of them is malformed.
    kept = {
        key: value
        for key, value in env.items()
        if not key.startswith("PIP_") or key == "PIP_CONFIG_FILE"
    }
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        env=kept,
        check=False,
    )
    if done.returncode and "No module named pip" not in done.stderr:
        # Its own text may quote a line of the file, with a password in it.
        raise EnvironmentProblem(
            "pip cannot read its own settings, which name the package index",
            hint="`pip config list` says what is wrong in them",
        )
    found: dict[str, dict[str, str]] = {}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"([\w-]+)\.([\w-]+)=(.*)", line)
        if match:
            with contextlib.suppress(ValueError, SyntaxError):
                found.setdefault(match[1], {})[match[2]] = str(literal_eval(match[3]))
    values = {**found.get("global", {}), **found.get("download", {})}
    return {key: value for key, value in values.items() if value}
