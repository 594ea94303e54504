"""What an image registry says a tag stands for: digests, by the HTTP API, version 2."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from patchkit.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    import requests

TIMEOUT = (10.0, 30.0)  # seconds to connect, and between two reads
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_TYPES = (
    *_INDEX_TYPES,
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_HINT = "try again where a registry answers, or name a mirror: --registry URL"


@dataclass(frozen=True)
class TagDigests:
    """What a tag stands for: ``digest`` is of the index where there is one.

    ``platforms`` has each architecture's own digest, as ``linux/amd64``; it is empty
    for an image of one architecture alone.
    """

    digest: str
    platforms: tuple[tuple[str, str], ...] = ()


class NoSuchTag(EnvironmentProblem):
    """The registry answers, and has no such image or tag for this user."""


def resolve_tag(name: str, tag: str, mirror: str = "") -> TagDigests:
    """Ask the registry of ``name``, or ``mirror`` (a URL), what ``tag`` stands for.

    Every digest is that of bytes received. Raises NoSuchTag, and EnvironmentProblem
    when no registry answers or what it sends is not what it says.
    """
    import requests

    base, repository, credentials = _place(name, mirror)
    url = f"{base}/v2/{repository}/manifests/{tag}"
    what = f"{name}:{tag}"
    try:
        with requests.Session() as session:
            session.headers["Accept"] = ", ".join(_TYPES)
            answer = session.get(url, timeout=TIMEOUT)
            if answer.status_code == requests.codes.unauthorized:
                _log_in(session, answer, credentials)
                answer = session.get(url, timeout=TIMEOUT)
    except (requests.RequestException, ValueError) as error:
        raise EnvironmentProblem(
            f"{what}: no registry answers at {base}: {type(error).__name__}", hint=_HINT
        ) from None
    if answer.status_code in (401, 403, 404):
        raise NoSuchTag(
            f"{what}: {base} has no such image, or not for you "
            f"(HTTP {answer.status_code})",
            hint="is the tag right? `docker login` first for a private image",
        )
    if answer.status_code != requests.codes.ok:
        raise EnvironmentProblem(
            f"{what}: {base} answers HTTP {answer.status_code}", hint=_HINT
        )
    return _read_manifest(what, answer.content, dict(answer.headers))


def _place(name: str, mirror: str) -> tuple[str, str, tuple[str, str] | None]:
    """The registry's URL, the repository in it, the user's credentials for it."""
    import docker.auth

    try:
        host, repository = docker.auth.resolve_repository_name(name)
    except docker.errors.InvalidRepository as error:
        raise UsageError(f"{name}: {error}") from None
    login = host
    if host == docker.auth.INDEX_NAME:
        # The one registry whose API has another host than its names.
        host = f"registry-1.{host}"
        if "/" not in repository:
            repository = f"library/{repository}"
    base = mirror.rstrip("/") or f"https://{host}"
    if not mirror and urlsplit(base).hostname in _LOOPBACK:
        base = base.replace("https:", "http:", 1)
    if urlsplit(base).scheme not in ("http", "https"):
        raise UsageError(f"{mirror}: no URL of a registry", hint="http://host:port")
    if mirror:
        login = urlsplit(base).netloc
    credentials = None
    # A credential helper of the user's may fail in ways of its own.
    with contextlib.suppress(Exception):
        entry = docker.auth.load_config().resolve_authconfig(login) or {}
        user = entry.get("username") or entry.get("Username")
        password = entry.get("password") or entry.get("Password")
        if user and password:
            credentials = (user, password)
    return base, repository, credentials


def _log_in(
    session: requests.Session,
    answer: requests.Response,
    credentials: tuple[str, str] | None,
) -> None:
    """Get what the challenge asks for; without it the next answer is 401 again."""
    from requests.utils import parse_dict_header

    scheme, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
    if scheme.lower() == "basic" and credentials:
        session.auth = credentials
        return
    challenge: dict[str, str | None] = parse_dict_header(rest)  # type: ignore[no-untyped-call]
    realm = challenge.get("realm") or ""
    if scheme.lower() != "bearer" or not realm:
        return
    # Credentials go to a realm in clear text only where the registry itself does.
    clear = urlsplit(realm).scheme != "https" and answer.url.startswith("https:")
    found = session.get(
        realm,
        params={k: challenge[k] for k in ("service", "scope") if challenge.get(k)},
        auth=None if clear else credentials,
        timeout=TIMEOUT,
    )
    if found.ok:
        data = found.json()
        token = data.get("token") or data.get("access_token")
        session.headers["Authorization"] = f"Bearer {token}"


def _read_manifest(what: str, content: bytes, headers: dict[str, str]) -> TagDigests:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    lower = {key.lower(): value for key, value in headers.items()}
    said = lower.get("docker-content-digest", digest)
    if said.startswith("sha256:") and said != digest:
        raise EnvironmentProblem(
            f"{what}: the registry says {said} and sends {digest}", hint=_HINT
        )
    try:
        manifest: dict[str, Any] = json.loads(content)
        kind = manifest.get("mediaType") or lower.get("content-type", "")
        if kind not in _TYPES:
            raise ValueError(kind)
        entries = manifest["manifests"] if kind in _INDEX_TYPES else []
        platforms = [(_platform(entry), str(entry["digest"])) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise EnvironmentProblem(
            f"{what}: the registry sends no manifest of a kind known here", hint=_HINT
        ) from None
    # Build attestations stand in an index as images for unknown/unknown.
    known = [entry for entry in platforms if not entry[0].startswith("unknown/")]
    return TagDigests(digest, tuple(sorted(known)))


def _platform(entry: dict[str, Any]) -> str:
    found = entry["platform"]
    parts = (found["os"], found["architecture"], found.get("variant"))
    return "/".join(part for part in parts if part)
