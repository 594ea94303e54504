"""Pinned files from the user's package indexes, asked in order."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from patchkit.errors import EnvironmentProblem
from patchkit.pip_settings import IndexSettings, read_settings
from patchkit.transfer_progress import TransferProgress

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage, ProjectPage

_NETWORK = "check the network and PIP_INDEX_URL; --offline uses the cache alone"
_ABSENT = "name an index that has it: PIP_INDEX_URL=…"
_OTHER = "truncated, or another file under this name: nothing was kept"


@dataclass(frozen=True)
class _Wanted:
    project: str
    file: str
    sha256: str


@dataclass(frozen=True)
class IndexedFile:
    """A file that an index lists; ``sha256`` is "" where it lists none."""

    file: str
    sha256: str
    withdrawn: bool


class _Miss(Exception):
    """One place did not give the file; the next one is asked."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


class PackageIndex:
    """Finds and fetches one project's files from the user's indexes, in order."""

    def __init__(self, settings: IndexSettings | None = None) -> None:
        self._settings = settings or read_settings()

    def fetch(self, project: str, file: str, sha256: str, target: Path) -> None:
        """Write the file named ``file``, whose SHA-256 is ``sha256``, to ``target``.

        Local folders (find-links) come first, then the indexes in order; one that
        fails or holds other bytes is passed over. Raises EnvironmentProblem with the
        reason of each when none is left. An OSError of the disk goes through.
        """
        wanted = _Wanted(project, file, sha256)
        misses: list[_Miss] = []
        for folder in self._settings.find_links:
            local = _local_path(folder) / file
            if local.is_file():
                try:
                    _copy(local, target)
                    _check(target, sha256, str(local.parent))
                    return
                except _Miss as miss:
                    misses.append(miss)
        if not self._settings.urls:
            misses.append(
                _Miss(
                    "pip's settings forbid every index (no-index)",
                    "unset PIP_NO_INDEX, or name a folder with it in PIP_FIND_LINKS",
                )
            )
        with self._session() as session:
            for url in self._settings.urls:
                try:
                    self._fetch_from(session, url, wanted, target)
                    return
                except _Miss as miss:
                    misses.append(miss)
        raise EnvironmentProblem(
            f"{file} could not be fetched: {'; '.join(map(str, misses))}",
            hint=misses[0].hint,
        )

    def list_files(self, project: str) -> list[IndexedFile]:
        """The project's files on the first index that has the project.

        Raises EnvironmentProblem with each index's reason when none has it.
        """
        misses: list[_Miss] = []
        with self._session() as session:
            for url in self._settings.urls:
                try:
                    page = self._page(session, url, project)
                except _Miss as miss:
                    misses.append(miss)
                    continue
                if page is None:
                    misses.append(_Miss(f"{shown_url(url)} lacks it", _ABSENT))
                    continue
                return [
                    IndexedFile(
                        package.filename,
                        (package.digests or {}).get("sha256", ""),
                        bool(package.is_yanked),
                    )
                    for package in page.packages
                ]
        said = "; ".join(map(str, misses)) or "pip's settings forbid every index"
        hint = misses[0].hint if misses else "unset PIP_NO_INDEX"
        raise EnvironmentProblem(f"no index lists {project}: {said}", hint=hint)

    def _fetch_from(
        self, session: requests.Session, url: str, wanted: _Wanted, target: Path
    ) -> None:
        index = shown_url(url)
        page = self._page(session, url, wanted.project)
        packages = page.packages if page is not None else []
        package = next((it for it in packages if it.filename == wanted.file), None)
        if package is None:
            raise _Miss(f"{index} does not have it", _ABSENT)
        listed = (package.digests or {}).get("sha256")
        if listed is not None and listed != wanted.sha256:
            raise _Miss(
                f"{index} lists sha256 {listed}, pinned is {wanted.sha256}", _OTHER
            )
        link = _with_credentials(package.url, url)
        self._download(session, replace(package, url=link), target)
        _check(target, wanted.sha256, index)

    @contextlib.contextmanager
    def _session(self) -> Iterator[requests.Session]:
        import requests

        settings = self._settings

        class PipSession(requests.Session):
            """pip's own settings win over the environment's.

            Attributes of a session do not: with ``trust_env``, which netrc needs,
            REQUESTS_CA_BUNDLE and HTTPS_PROXY beat them (requests issue 3829).
            """

            def merge_environment_settings(
                self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
            ) -> Any:
                merged = super().merge_environment_settings(
                    url, proxies, stream, verify, cert
                )
                if settings.cert:
                    merged["verify"] = settings.cert
                if settings.client_cert:
                    merged["cert"] = settings.client_cert
                if settings.proxy:
                    merged["proxies"] = dict.fromkeys(("http", "https"), settings.proxy)
                host = urlsplit(str(url)).netloc.rpartition("@")[2]
                if {host, host.partition(":")[0]} & set(settings.trusted_hosts):
                    # What arrives is checked against the pinned digest.
                    merged["verify"] = False
                return merged

        with PipSession() as session:
            yield session

    def _page(
        self, session: requests.Session, url: str, project: str
    ) -> ProjectPage | None:
        from pypi_simple import NoSuchProjectError, ProjectPage, PyPISimple

        if url.startswith("file:"):
            file = _local_path(url) / project / "index.html"
            try:
                text = file.read_bytes().decode("utf-8", "replace")
            except FileNotFoundError:
                return None
            except OSError as error:
                reason = f"{shown_url(url)}: {error.strerror}"
                raise _Miss(reason, _ABSENT) from None
            return ProjectPage.from_html(project, text, file.as_uri())
        try:
            return PyPISimple(url, session=session).get_project_page(
                project, timeout=self._settings.timeouts
            )
        except NoSuchProjectError:
            return None
        except Exception as error:
            raise _Miss(f"{shown_url(url)}: {_reason(error)}", _NETWORK) from None

    def _download(
        self, session: requests.Session, package: DistributionPackage, target: Path
    ) -> None:
        from pypi_simple import PyPISimple

        if package.url.startswith("file:"):
            _copy(_local_path(package.url), target)
            return
        try:
            # The digest is checked after, on the bytes that the disk took.
            PyPISimple(session=session).download_package(
                package,
                target,
                verify=False,
                progress=lambda total: TransferProgress(package.filename, total),
                timeout=self._settings.timeouts,
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise _Miss(
                f"{shown_url(package.url)}: {_reason(error)}", _NETWORK
            ) from None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, as 64 hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def shown_url(url: str) -> str:
    """A URL without its credentials and query, as it may be printed."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an index URL that is none"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _with_credentials(link: str, index: str) -> str:
    """A file's link with the index's credentials, on the index's own host only."""
    parts, own = urlsplit(link), urlsplit(index)
    credentials, _, host = own.netloc.rpartition("@")
    if credentials and parts.netloc == host and parts.scheme == own.scheme:
        return urlunsplit(parts._replace(netloc=own.netloc))
    return link


def _check(target: Path, sha256: str, place: str) -> None:
    found = file_sha256(target)
    if found != sha256:
        size = target.stat().st_size
        raise _Miss(
            f"{place}: sha256 of the {size} bytes is {found}, pinned is {sha256}",
            _OTHER,
        )


def _copy(source: Path, target: Path) -> None:
    """Copy a local file; one that cannot be read is a miss, a full disk is not."""
    try:
        file = source.open("rb")
    except OSError as error:
        raise _Miss(f"{source}: {error.strerror}", _ABSENT) from None
    with file, target.open("wb") as written:
        shutil.copyfileobj(file, written, 1 << 20)


def _local_path(url: str) -> Path:
    if url.startswith("file:"):
        return Path(unquote(urlsplit(url).path))
    return Path(os.path.expanduser(url))  # noqa: PTH111 (raises without a home)


def _reason(error: Exception) -> str:
    """A few words for whatever requests raises; its own texts span many lines."""
    import requests
    from pypi_simple import UnsupportedContentTypeError, UnsupportedRepoVersionError

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP {error.response.status_code} {error.response.reason}".strip()
    words: list[tuple[Any, str]] = [
        (requests.exceptions.SSLError, "its certificate is not trusted (PIP_CERT)"),
        (requests.exceptions.ProxyError, "no connection through the proxy"),
        (requests.Timeout, "no answer in time"),
        (requests.exceptions.ChunkedEncodingError, "the transfer was cut short"),
        (requests.ConnectionError, "no connection"),
        (requests.TooManyRedirects, "too many redirects"),
        (UnsupportedContentTypeError, "answers, but is no package index"),
        (UnsupportedRepoVersionError, "speaks a newer index protocol"),
        (ValueError, "is no URL of a package index"),
    ]
    found = (text for kind, text in words if isinstance(error, kind))
    return next(found, type(error).__name__)
