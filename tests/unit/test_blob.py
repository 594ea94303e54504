"""Blob ids equal those of `git hash-object`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_git import git

from patchkit.blob import NULL_ID, blob_id, is_null


@pytest.mark.parametrize("data", [b"", b"x\n", b"a\r\n\0\xff", b"x" * 70_000])
def test_blob_id_is_gits(data: bytes, tmp_path: Path) -> None:
    said = git(tmp_path, "hash-object", "--stdin", data=data)
    assert blob_id(data) == said.decode().strip()


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    said = git(Path(tempfile.gettempdir()), "hash-object", "--stdin", data=data)
    assert blob_id(data) == said.decode().strip()


def test_null_id() -> None:
    assert is_null(NULL_ID)
    assert is_null("0000000")
    assert not is_null(blob_id(b""))
