"""Git's name for the bytes of a file, without git."""

from __future__ import annotations

import hashlib

NULL_ID = "0" * 40


def blob_id(data: bytes) -> str:
    """Return git's blob id of ``data``, 40 hex digits (SHA-1 over ``blob N\\0``).

    Git's name for a content, not a seal against forgery: what a release's bytes are
    is pinned by the SHA-256 digests of ``releases.toml``.
    """
    digest = hashlib.sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def blob_id_sha256(data: bytes) -> str:
    """Return the blob id that a repository of object format sha256 gives ``data``."""
    return hashlib.sha256(b"blob %d\0" % len(data) + data).hexdigest()


def is_null(stated: str) -> bool:
    """Tell whether an id of an ``index`` line stands for "no file"."""
    return not stated.strip("0")
