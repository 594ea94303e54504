"""Which releases an index lists: final ones with an sdist and a digest, in order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from local_index import Index, serving

from patchkit.errors import EnvironmentProblem, UsageError
from patchkit.index_versions import find_sdist, list_indexed
from patchkit.releases import load_releases

DIGEST = "a" * 64
LINK = '<a href="../../files/{file}#sha256={digest}"{more}>{file}</a>\n'


def link(file: str, more: str = "", digest: str = DIGEST) -> str:
    return LINK.format(file=file, digest=digest, more=more)


PAGE = "".join(
    (
        link("vllm-0.10.0.tar.gz"),
        link("vllm-0.9.2.tar.gz"),
        link("vllm-0.11.0rc1.tar.gz"),
        link("vllm-0.11.0+cpu.tar.gz"),
        link("vllm-0.11.0-cp38-abi3-manylinux1_x86_64.whl"),
        link("vllm-0.12.0.tar.gz", ' data-yanked="broken"'),
        link("vllm-0.13.0.tar.gz", digest="").replace("#sha256=", ""),
        link("vllm-nonsense.tar.gz"),
        link("vllm-0.10.1.post1.tar.gz"),
    )
)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_only_final_releases_with_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Index(page=PAGE.encode())) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        found = list_indexed()
        assert [str(each.version) for each in found] == [
            "0.9.2",
            "0.10.0",
            "0.10.1.post1",
        ]
        assert {each.sha256 for each in found} == {DIGEST}
        assert find_sdist(load_releases(), "0.10").version == "0.10.1.post1"
        with pytest.raises(UsageError, match=r"0\.13"):
            find_sdist(load_releases(), "0.13")
        assert f"/files/{found[0].file}" not in index.asked


def test_a_release_of_the_kit_needs_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Index(page=PAGE.encode())) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        assert find_sdist(load_releases(), "0.25.0").version == "0.25.0"
        assert index.asked == []


@pytest.mark.parametrize("status", [404, 500])
def test_an_index_that_does_not_answer(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Index(status=status)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        with pytest.raises(EnvironmentProblem, match="no index lists vllm"):
            list_indexed()
