"""Pinned sources: every way in which a download fails, the cache, the extract."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_index import FILE, FILES, Index, make_sdist, pin, serving
from small_disk import Need, read_only, small_disk

from patchkit import pinned_file, pip_settings
from patchkit.errors import EnvironmentProblem
from patchkit.file_state import FileState, UnsafePath
from patchkit.package_index import PackageIndex, shown_url
from patchkit.pip_settings import read_settings
from patchkit.releases import PROJECT, Release
from patchkit.upstream import fetch_sdist, open_source

SDIST = make_sdist()
SECRET = "hunter2"
CONFIG_FILES = pip_settings._config_files


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the user's, no proxy, and a cache of the test's own."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    # Half a second a test; those of the settings call the real one.
    monkeypatch.setattr(pip_settings, "_config_files", lambda _env: {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serving(Index(SDIST)) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running


def cached(tmp_path: Path) -> list[str]:
    """Every file in the cache, unfinished ones too."""
    folder = tmp_path / "cache"
    return sorted(
        str(path.relative_to(folder / "vllm-patchkit"))
        for path in folder.rglob("*")
        if path.is_file()
    )


def problem(release: Release | None = None, **options: Any) -> EnvironmentProblem:
    with pytest.raises(EnvironmentProblem) as caught:
        fetch_sdist((release or pin(SDIST)).sdist[0], **options)
    assert "\n" not in str(caught.value) + caught.value.hint
    assert caught.value.hint
    assert caught.value.exit_code == 2
    assert SECRET not in str(caught.value) + caught.value.hint
    return caught.value


# The download


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "no-digest-listed"])
def test_fetched_once(listed: bool, index: Index, tmp_path: Path) -> None:
    sdist = pin(SDIST).sdist[0]
    index.listed = sdist.sha256 if listed else None
    path = fetch_sdist(sdist)
    assert path == tmp_path / "cache" / "vllm-patchkit" / "sdists" / FILE
    assert path.read_bytes() == SDIST
    assert fetch_sdist(sdist) == path
    assert index.asked == ["/simple/vllm/", f"/files/{FILE}"]
    assert cached(tmp_path) == [f"sdists/{FILE}"]


def test_one_line_at_each_end(index: Index, capfd: pytest.CaptureFixture[str]) -> None:
    assert index
    fetch_sdist(pin(SDIST).sdist[0])
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == f"downloading {FILE}, 0 MB\ndownloaded {FILE}\n"


def test_json_index(index: Index) -> None:
    index.page_type = "application/vnd.pypi.simple.v1+json"
    file = {"filename": FILE, "url": f"../../files/{FILE}", "hashes": {}}
    index.page = json.dumps(
        {"meta": {"api-version": "1.0"}, "name": "vllm", "files": [file]}
    ).encode()
    assert fetch_sdist(pin(SDIST).sdist[0]).read_bytes() == SDIST


OTHER = "0" * 64


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": 404}, "does not have it"),
        ({"status": 503}, "HTTP 503"),
        ({"page": b"<html></html>"}, "does not have it"),
        ({"page": b"\x00\xff" * 9, "page_type": "image/png"}, "no package index"),
        ({"page": b"[", "page_type": "application/json"}, "no package index"),
        (
            {"page": b"[", "page_type": "application/vnd.pypi.simple.v1+json"},
            "is no URL of a package index",
        ),
        ({"file_status": 404}, "HTTP 404"),
        ({"file_status": 403}, "HTTP 403"),
        ({"listed": OTHER}, f"lists sha256 {OTHER}, pinned is "),
        ({"cut": 100}, "the transfer was cut short"),
        ({"cut": 0}, "the transfer was cut short"),
        ({"cut": 100, "chunked": True}, "sha256 of the 100 bytes is "),
        ({"data": SDIST + b"x"}, "sha256 of the "),
        ({"data": b""}, "sha256 of the 0 bytes is "),
        ({"user": f"me:{SECRET}"}, "HTTP 401"),
    ],
    ids=str,
)
def test_a_failing_index(
    change: dict[str, Any], said: str, index: Index, tmp_path: Path
) -> None:
    vars(index).update(change)
    error = problem()
    assert str(error).startswith(f"{FILE} could not be fetched: http://127.0.0.1:")
    assert said in str(error)
    assert cached(tmp_path) == []


def test_connection_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:{SECRET}@127.0.0.1:{port}/simple/")
    assert f"http://127.0.0.1:{port}/simple/: no connection" in str(problem())
    assert cached(tmp_path) == []


def test_no_answer(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "0.2")
    index.delay = 1
    began = time.monotonic()
    assert "no answer in time" in str(problem())
    assert time.monotonic() - began < 0.9


@pytest.mark.parametrize(
    "url", ["nowhere", "http://h:port/", "http://[::1/", "ftp://h"]
)
def test_index_urls_that_are_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", url)
    assert "could not be fetched" in str(problem())


def test_full_disk(
    index: Index, tmp_path: Path, need: Need, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.data = make_sdist({"noise": bytes(range(256)) + os.urandom(10**6)})
    with small_disk(tmp_path / "disk", 256, need) as disk:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
        error = problem(pin(index.data))
        assert "the disk is full" in str(error)
        assert "XDG_CACHE_HOME" in error.hint
        assert [path for path in disk.rglob("*") if path.is_file()] == []


def test_read_only_cache(index: Index, tmp_path: Path, need: Need) -> None:
    assert index
    folder = tmp_path / "cache" / "vllm-patchkit" / "sdists"
    folder.mkdir(parents=True)
    with read_only(folder, need):
        assert "cannot write" in str(problem())
    (folder / FILE).write_bytes(SDIST)
    with read_only(folder, need):
        assert fetch_sdist(pin(SDIST).sdist[0]) == folder / FILE


def test_ctrl_c(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchkit.transfer_progress import TransferProgress

    def stop(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TransferProgress, "update", stop)
    with pytest.raises(KeyboardInterrupt):
        fetch_sdist(pin(SDIST).sdist[0])
    assert index.asked[-1] == f"/files/{FILE}"
    assert cached(tmp_path) == []


def test_disk_error_while_writing(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patchkit.transfer_progress import TransferProgress

    assert index

    def fail(*_args: object) -> None:
        raise OSError(errno.EIO, "whatever")

    monkeypatch.setattr(TransferProgress, "update", fail)
    assert "Input/output error" in str(problem())
    assert cached(tmp_path) == []


# Several places


def test_the_next_index_is_asked(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(Index(SDIST + b"x")) as wrong, serving(Index(status=500)) as down:
        monkeypatch.setenv("PIP_INDEX_URL", down.url)
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{wrong.url} {index.url}")
        assert fetch_sdist(pin(SDIST).sdist[0]).read_bytes() == SDIST
        assert [len(each.asked) for each in (down, wrong, index)] == [1, 2, 2]
        index.status = 404
        (tmp_path / "cache" / "vllm-patchkit" / "sdists" / FILE).unlink()
        error = str(problem())
    assert [error.find(word) for word in ("HTTP 500", "sha256", "not have it")] > [
        0
    ] * 3
    assert error.count(";") == 2


def test_file_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "an index" / "vllm"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PIP_INDEX_URL", folder.parent.as_uri())
    assert "does not have it" in str(problem())
    (folder / "index.html").write_text(f'<a href="{FILE}">{FILE}</a>')
    assert "No such file" in str(problem())
    (folder / FILE).write_bytes(SDIST[:-1])
    assert "sha256 of the" in str(problem())
    (folder / FILE).write_bytes(SDIST)
    assert fetch_sdist(pin(SDIST).sdist[0]).read_bytes() == SDIST


def test_find_links(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / FILE).write_bytes(b"another")
    monkeypatch.setenv("PIP_FIND_LINKS", f"https://example.invalid/ {folder}")
    fetch_sdist(pin(SDIST).sdist[0]).unlink()
    assert index.asked  # the folder's file is not the pinned one
    index.asked.clear()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    error = str(problem())
    assert "sha256 of the 7 bytes" in error
    assert "forbid every index" in error
    (folder / FILE).write_bytes(SDIST)
    assert fetch_sdist(pin(SDIST).sdist[0]).read_bytes() == SDIST
    assert index.asked == []


@pytest.mark.parametrize("absolute", [False, True])
def test_credentials_of_the_url(
    absolute: bool, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.user, index.absolute = f"me:{SECRET}", absolute
    url = index.url.replace("//", f"//me:{SECRET}@")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    assert fetch_sdist(pin(SDIST).sdist[0]).read_bytes() == SDIST


def test_credentials_of_netrc(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.user = f"me:{SECRET}"
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert fetch_sdist(pin(SDIST).sdist[0]).read_bytes() == SDIST


def test_credentials_stay_on_their_host(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file on another host gets none: it answers 401 and nothing was sent."""
    with serving(Index(SDIST, user="x:y")) as other:
        index.page = f'<a href="{other.url}/../files/{FILE}">{FILE}</a>'.encode()
        index.user = "x:y"
        monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//x:y@"))
        assert "HTTP 401" in str(problem())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@host:8443/simple?token=t#f", "https://host:8443/simple"),
        ("http://[::1]:80/s", "http://[::1]:80/s"),
        ("http://pw@h:port/", "http://h:port/"),
        ("http://[::1/", "an index URL that is none"),
        ("file:///a/b", "file:///a/b"),
    ],
)
def test_shown_url(url: str, shown: str) -> None:
    assert shown_url(url) == shown


# pip's settings


@pytest.fixture
def real_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip_settings, "_config_files", CONFIG_FILES)


def settings_of(tmp_path: Path, text: str, **env: str) -> Any:
    file = tmp_path / "pip.conf"
    file.write_text(text)
    return read_settings({**os.environ, "PIP_CONFIG_FILE": str(file), **env})


@pytest.mark.usefixtures("real_files")
def test_settings_from_pips_file(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        "[global]\nindex-url = https://a/simple\ncert = /ca.pem\ntimeout = 7\n"
        "trusted-host = b\n    c:81\nextra-index-url =\n    https://b/s\n    https://c\n"
        "[download]\nindex-url = https://d/simple\n[install]\nno-index = true\n",
    )
    assert settings.urls == ("https://d/simple", "https://b/s", "https://c")
    assert settings.cert == "/ca.pem"
    assert settings.trusted_hosts == ("b", "c:81")
    assert settings.timeouts == (7.0, 7.0)


@pytest.mark.usefixtures("real_files")
def test_environment_wins_and_empty_is_unset(tmp_path: Path) -> None:
    text = "[global]\nindex-url = https://a/simple\nproxy = http://p:1\n"
    env = {"PIP_INDEX_URL": "https://e/simple", "PIP_PROXY": "", "PIP_TIMEOUT": "x"}
    settings = settings_of(tmp_path, text, **env)
    assert settings.urls == ("https://e/simple",)
    assert settings.proxy == "http://p:1"
    assert settings.timeouts == read_settings({"PATH": ""}).timeouts


@pytest.mark.usefixtures("real_files")
def test_without_pip_the_environment_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho python: No module named pip >&2; exit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    settings = settings_of(
        tmp_path, "[global]\nindex-url = https://a/\n", PIP_FIND_LINKS="/w"
    )
    assert settings.find_links == ("/w",)
    assert settings.urls != ("https://a/",)


@pytest.mark.usefixtures("real_files")
def test_a_broken_file_of_pips(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot read its own") as caught:
        settings_of(tmp_path, f"index-url = https://me:{SECRET}@a/\n")
    assert SECRET not in str(caught.value)


def test_pips_settings_beat_the_environments(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead HTTP_PROXY is not used where pip has a proxy: the server itself here."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert "no connection" in str(problem())
    monkeypatch.setenv("PIP_PROXY", f"http://127.0.0.1:{index.port}")
    # Asked as a proxy, the server is sent whole URLs, which it does not know.
    assert "does not have it" in str(problem())
    assert index.asked == [f"{index.url}/vllm/"]


def test_tls_settings_reach_the_request(tmp_path: Path) -> None:
    from patchkit.pip_settings import IndexSettings

    settings = IndexSettings(
        ("https://a",), cert="/ca", client_cert="/me", trusted_hosts=("b", "c:1")
    )
    with PackageIndex(settings)._session() as session:

        def merged(url: str) -> Any:
            return session.merge_environment_settings(url, {}, True, None, None)

        assert merged("https://u:p@a/s")["verify"] == "/ca"
        assert merged("https://a/s")["cert"] == "/me"
        assert merged("https://b:9/s")["verify"] is False
        assert merged("https://u:p@c:1/s")["verify"] is False
        assert merged("https://c:2/s")["verify"] == "/ca"


# The cache


@pytest.mark.parametrize("damage", [b"", SDIST[:-9], SDIST + b"\0", b"x" * len(SDIST)])
def test_a_damaged_file_is_fetched_again(
    damage: bytes, index: Index, tmp_path: Path
) -> None:
    sdist = pin(SDIST).sdist[0]
    path = fetch_sdist(sdist)
    path.write_bytes(damage)
    error = problem(offline=True)
    assert "is damaged" in str(error)
    assert str(path) in str(error)
    assert "--offline" in error.hint
    assert fetch_sdist(sdist).read_bytes() == SDIST
    assert len(index.asked) == 4
    assert cached(tmp_path) == [f"sdists/{FILE}"]


def test_offline_says_what_is_missing(index: Index, tmp_path: Path) -> None:
    error = problem(offline=True)
    assert f"{FILE} is not in the cache (" in str(error)
    assert index.asked == []
    assert cached(tmp_path) == []


def test_two_at_once(index: Index, tmp_path: Path) -> None:
    """Two processes, one empty cache: both right, one file."""
    index.delay = 0.3
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from local_index import pin, make_sdist\n"
        "from patchkit.upstream import open_source\n"
        "release = pin(bytes.fromhex(sys.argv[3]))\n"
        "print(open_source(release, paths=['m.py']).read('m.py').data)\n"
    )
    command = [sys.executable, "-c", code, str(PROJECT / "tools")]
    command += [str(PROJECT / "tests" / "unit"), SDIST.hex()]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    assert [job.communicate()[0] for job in running] == [
        f"{FILES['m.py']!r}\n".encode()
    ] * 2
    assert len([name for name in cached(tmp_path) if "sdists" in name]) == 1
    assert not [name for name in cached(tmp_path) if "/." in name]


# The extract


def test_reads_bytes_modes_and_absence(index: Index, tmp_path: Path) -> None:
    source = open_source(pin(SDIST), paths=["m.py", "vllm/none.py"])
    assert source.label == FILE
    assert source.version == "1.0"
    assert source.read("m.py") == FileState(FILES["m.py"], 0o100644)
    assert source.read("vllm/run.sh") == FileState(FILES["vllm/run.sh"], 0o100755)
    assert source.read("vllm/__init__.py") == FileState(b"")
    assert source.read("vllm/none.py") is None
    assert source.read("m.pyc") is None
    assert source.ruff_config.read_bytes() == FILES["pyproject.toml"]
    assert source.file("m.py").read_bytes() == FILES["m.py"]
    assert source.find_name("run.sh") == ["vllm/run.sh"]
    # Of the archive, only what was asked for is unpacked.
    kept = {name.partition("/files/")[2] for name in cached(tmp_path)}
    assert kept == {"", "m.py", "vllm/run.sh", "vllm/__init__.py", "pyproject.toml"}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("vllm", "not-regular"),
        ("m.py/x", "parent-is-file"),
        ("link", "symlink"),
        ("link/x.py", "symlink"),
        ("../m.py", "escapes"),
        ("/m.py", "escapes"),
        ("", "escapes"),
    ],
)
def test_unsafe_paths(path: str, reason: str, index: Index) -> None:
    index.data = make_sdist(links={"link": "/etc"})
    source = open_source(pin(index.data))
    with pytest.raises(UnsafePath) as caught:
        source.read(path)
    assert caught.value.reason == reason


def test_hostile_members_are_never_written(index: Index, tmp_path: Path) -> None:
    index.data = make_sdist(
        {**FILES, "../../../../evil": b"x", "a/../../../evil": b"x", "link/y": b"y"},
        links={"link": str(tmp_path)},
    )
    names = ["../../../../evil", "a/../../../evil", "link/y", "link"]
    with pytest.raises(UnsafePath):
        open_source(pin(index.data)).read(names[0])
    open_source(pin(index.data), paths=names)
    assert not list(tmp_path.rglob("evil"))
    assert not (tmp_path / "y").exists()


def test_warm_needs_neither_archive_nor_network(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_source(pin(SDIST), paths=["m.py"])
    (tmp_path / "cache" / "vllm-patchkit" / "sdists" / FILE).unlink()
    index.asked.clear()
    monkeypatch.setattr(pinned_file, "PackageIndex", None)
    source = open_source(pin(SDIST), paths=["m.py", "none"], offline=True)
    assert source.read("m.py") == FileState(FILES["m.py"])
    assert source.read("none") is None
    with pytest.raises(EnvironmentProblem, match="--offline forbids"):
        source.read("vllm/run.sh")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "files" / "m.py"),
        lambda folder: (folder / "files" / "m.py").unlink(),
        lambda folder: flip(folder / "index.json"),
        lambda folder: (folder / "index.json").write_bytes(b""),
        lambda folder: (folder / "index.json").write_bytes(b"{}"),
        lambda folder: (folder / "index.json").unlink(),
    ],
    ids=["changed", "gone", "index", "index-empty", "index-old", "index-gone"],
)
def test_a_damaged_extract_is_made_anew(
    damage: Callable[[Path], object], index: Index, tmp_path: Path
) -> None:
    release = pin(SDIST)
    source = open_source(release, paths=["m.py"])
    damage(tmp_path / "cache" / "vllm-patchkit" / "extracts" / release.sdist[0].sha256)
    again = open_source(release, paths=["m.py"])
    assert again.file("m.py").read_bytes() == FILES["m.py"]
    assert again.read("m.py") == FileState(FILES["m.py"])
    assert source.read("m.py") == FileState(FILES["m.py"])
    assert len(index.asked) == 2  # the archive is in the cache


@pytest.mark.parametrize(
    "data",
    [b"no archive", SDIST[: len(SDIST) // 2], b"\x1f\x8b\x08\0\0\0\0\0\0\3junk", b""],
)
def test_a_pinned_file_that_is_no_sdist(data: bytes, index: Index) -> None:
    index.data = data
    with pytest.raises(EnvironmentProblem, match="no sdist") as caught:
        open_source(pin(data), paths=["m.py"])
    assert "\n" not in str(caught.value)


def test_extract_on_a_full_disk(
    index: Index, tmp_path: Path, need: Need, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = bytes(400_000)
    index.data = make_sdist({**FILES, "big": big})
    with small_disk(tmp_path / "disk", 200, need) as disk:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
        with pytest.raises(EnvironmentProblem, match="the disk is full"):
            open_source(pin(index.data), paths=["big"])
        assert not [path for path in disk.rglob(".*") if path.is_file()]
        source = open_source(pin(index.data), paths=["m.py"])
        assert source.read("m.py") == FileState(FILES["m.py"])
