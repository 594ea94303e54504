"""The user's package indexes, as pip is set up to use them, and files from them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from patchkit.errors import EnvironmentProblem

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage, ProjectPage

TIMEOUT = (15.0, 60.0)  # seconds to connect, and between two reads


@dataclass(frozen=True)
class IndexSettings:
    """What pip would use: index URLs in order, local folders, a CA file, a proxy.

    ``urls`` is empty when the user forbids every index (``no-index``).
    """

    urls: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    proxy: str | None = None


def read_settings(environment: Mapping[str, str] | None = None) -> IndexSettings:
    """pip's own settings, read through ``pip config list``: files and environment.

    Without pip only the environment counts.
    """
    env = dict(os.environ if environment is None else environment)
    values = {
        key.removeprefix("PIP_").lower().replace("_", "-"): value
        for key, value in env.items()
        if key.startswith("PIP_")
    }
    for key, value in _pip_config(env).items():
        values.setdefault(key, value)
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    urls = [values.get("index-url", PYPI_SIMPLE_ENDPOINT)]
    urls += values.get("extra-index-url", "").split()
    if values.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        urls = []
    return IndexSettings(
        tuple(urls),
        tuple(values.get("find-links", "").split()),
        values.get("cert"),
        values.get("proxy"),
    )


def _pip_config(env: Mapping[str, str]) -> dict[str, str]:
    """Values of pip's files; a command's own section wins over ``global``."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        env=dict(env),
        check=False,
    )
    found: dict[str, dict[str, str]] = {}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"([\w-]+)\.([\w-]+)=(.*)", line)
        if match:
            with contextlib.suppress(ValueError, SyntaxError):
                found.setdefault(match[1], {})[match[2]] = str(literal_eval(match[3]))
    return {**found.get("global", {}), **found.get("download", {})}


def shown_url(url: str) -> str:
    """A URL without its credentials and query, as it may be printed."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.port:
        host += f":{parts.port}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


class PackageIndex:
    """Finds and fetches one project's files from the user's indexes, in order."""

    def __init__(self, settings: IndexSettings | None = None) -> None:
        self._settings = settings or read_settings()

    def fetch(self, project: str, file: str, sha256: str, target: Path) -> None:
        """Write the file named ``file`` to ``target``; its digest is not checked.

        Raises EnvironmentProblem when no index has the file, one lists it with
        another digest than ``sha256``, or the transfer breaks off. OSError of the
        disk goes through.
        """
        for folder in self._settings.find_links:
            local = _local_path(folder) / file
            if local.is_file():
                target.write_bytes(local.read_bytes())
                return
        if not self._settings.urls:
            raise EnvironmentProblem(
                f"{file}: pip's settings forbid every index (no-index)",
                hint="unset PIP_NO_INDEX, or name a folder with it in PIP_FIND_LINKS",
            )
        asked = []
        with self._session() as session:
            for url in self._settings.urls:
                asked.append(shown_url(url))
                page = self._page(session, url, project)
                package = _find(page, file)
                if package is not None:
                    self._check_listed(package, file, sha256, shown_url(url))
                    self._download(session, package, target)
                    return
        raise EnvironmentProblem(
            f"{file} is not on {' or '.join(asked)}",
            hint="name an index that has it: PIP_INDEX_URL=…",
        )

    @contextlib.contextmanager
    def _session(self) -> Iterator[requests.Session]:
        import requests

        with requests.Session() as session:
            if self._settings.cert:
                # An explicit CA file wins over REQUESTS_CA_BUNDLE only without
                # trust_env, which netrc needs (requests issue 3829); so set both.
                os.environ["REQUESTS_CA_BUNDLE"] = self._settings.cert
            if self._settings.proxy:
                proxy = self._settings.proxy
                session.proxies = {"http": proxy, "https": proxy}
            yield session

    def _page(
        self, session: requests.Session, url: str, project: str
    ) -> ProjectPage | None:
        from pypi_simple import NoSuchProjectError, ProjectPage, PyPISimple

        if url.startswith("file:"):
            page = _local_path(url) / project / "index.html"
            if not page.is_file():
                return None
            return ProjectPage.from_html(project, page.read_text(), page.as_uri())
        try:
            return PyPISimple(url, session=session).get_project_page(
                project, timeout=TIMEOUT
            )
        except NoSuchProjectError:
            return None
        except Exception as error:
            raise _network_problem(f"cannot ask {shown_url(url)}", error) from None

    def _check_listed(
        self, package: DistributionPackage, file: str, sha256: str, index: str
    ) -> None:
        listed = (package.digests or {}).get("sha256")
        if listed is not None and listed != sha256:
            raise EnvironmentProblem(
                f"{file}: {index} lists sha256 {listed}, pinned is {sha256}",
                hint="another file under this name: do not use it; ask another index",
            )

    def _download(
        self, session: requests.Session, package: DistributionPackage, target: Path
    ) -> None:
        from pypi_simple import PyPISimple

        if package.url.startswith("file:"):
            target.write_bytes(_local_path(package.url).read_bytes())
            return
        client = PyPISimple(session=session)
        try:
            client.download_package(
                package,
                target,
                verify=False,
                progress=lambda total: TransferProgress(package.filename, total),
                timeout=TIMEOUT,
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise _network_problem(f"{package.filename} broke off", error) from None


def _find(page: ProjectPage | None, file: str) -> DistributionPackage | None:
    packages = page.packages if page is not None else []
    return next((entry for entry in packages if entry.filename == file), None)


def _local_path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path)) if url.startswith("file:") else Path(url)


def _network_problem(what: str, error: Exception) -> EnvironmentProblem:
    """One line for whatever requests raises; its own texts span many."""
    import requests

    reason = type(error).__name__
    if isinstance(error, requests.HTTPError) and error.response is not None:
        reason = f"HTTP {error.response.status_code} {error.response.reason}"
    elif isinstance(error, requests.exceptions.SSLError):
        reason = "the certificate is not trusted (PIP_CERT names a CA file)"
    elif isinstance(error, requests.Timeout):
        reason = "no answer in time"
    elif isinstance(error, requests.exceptions.ChunkedEncodingError):
        reason = "the transfer was cut short"
    elif isinstance(error, requests.ConnectionError):
        reason = "no connection"
    return EnvironmentProblem(
        f"{what}: {reason}",
        hint="check the network and PIP_INDEX_URL; --offline uses the cache alone",
    )


class TransferProgress:
    """A progress bar on standard error; on no terminal, one line at each end."""

    def __init__(self, name: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._name = name
        self._total = total
        self._done = 0
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> TransferProgress:
        self._bar.start()
        self._task = self._bar.add_task(self._name, total=self._total)
        if not self._console.is_terminal:
            size = f", {self._total / 1e6:.0f} MB" if self._total else ""
            print(f"downloading {self._name}{size}", file=sys.stderr, flush=True)
        return self

    def update(self, increment: int) -> None:
        """Count ``increment`` more bytes."""
        self._done += increment
        self._bar.update(self._task, advance=increment)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if kind is None and not self._console.is_terminal:
            print(f"downloaded {self._name}", file=sys.stderr, flush=True)
