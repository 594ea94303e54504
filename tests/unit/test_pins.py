"""Image pins: a real registry on the loopback interface, and one that misbehaves."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from one_release import releases_text

from patchkit import registry as registry_module
from patchkit.errors import EnvironmentProblem, UsageError
from patchkit.pins import Pin, resolve_pins, write_pins
from patchkit.registry import NoSuchTag, TagDigests, resolve_tag
from patchkit.releases import PROJECT, BaseImage, Releases, load_releases

GOOD = releases_text()
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
ROOT = "/usr/local/lib/python3.12/dist-packages"
SECRET = "hunter2"
NEW = "sha256:" + "5" * 64


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


# A real registry


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def registry(
    tmp_path_factory: pytest.TempPathFactory, need: Callable[[bool, str], None]
) -> Iterator[str]:
    """The URL of Debian's docker-registry, empty."""
    program = shutil.which("docker-registry")
    need(program is not None, "no docker-registry (Debian's package docker-registry)")
    assert program is not None
    folder = tmp_path_factory.mktemp("registry")
    port = free_port()
    config = folder / "config.json"  # JSON is YAML
    config.write_text(
        json.dumps(
            {
                "version": "0.1",
                "log": {"level": "error"},
                "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
                "http": {"addr": f"127.0.0.1:{port}"},
            }
        )
    )
    job = subprocess.Popen(
        [program, "serve", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            with contextlib.suppress(requests.ConnectionError):
                if requests.get(f"{url}/v2/", timeout=5).ok:
                    break
            time.sleep(0.05)
        yield url
    finally:
        job.terminate()
        job.wait()


def push_blob(url: str, name: str, data: bytes) -> dict[str, Any]:
    start = requests.post(f"{url}/v2/{name}/blobs/uploads/", timeout=5)
    place = start.headers["Location"]
    joint = "&" if "?" in place else "?"
    done = requests.put(f"{place}{joint}digest={digest_of(data)}", data=data, timeout=5)
    assert done.status_code == 201
    return {"digest": digest_of(data), "size": len(data)}


def push_manifest(
    url: str, name: str, tag: str, kind: str, manifest: dict[str, Any]
) -> bytes:
    data = json.dumps({"schemaVersion": 2, "mediaType": kind, **manifest}).encode()
    done = requests.put(
        f"{url}/v2/{name}/manifests/{tag}",
        data=data,
        headers={"Content-Type": kind},
        timeout=5,
    )
    assert done.status_code == 201, done.text
    return data


def push_image(url: str, name: str, tag: str, words: bytes) -> bytes:
    config = push_blob(url, name, json.dumps({"x": words.decode()}).encode())
    layer = push_blob(url, name, words)
    config["mediaType"] = "application/vnd.oci.image.config.v1+json"
    layer["mediaType"] = "application/vnd.oci.image.layer.v1.tar"
    return push_manifest(
        url, name, tag, MANIFEST, {"config": config, "layers": [layer]}
    )


def push_index(url: str, name: str, tag: str) -> tuple[bytes, dict[str, str]]:
    """An image of two architectures with an attestation, as builders push them."""
    entries, expected = [], {}
    for system, architecture, variant in (
        ("linux", "amd64", ""),
        ("linux", "arm64", "v8"),
        ("unknown", "unknown", ""),
    ):
        data = push_image(url, name, f"part-{architecture}", architecture.encode())
        platform = {"os": system, "architecture": architecture}
        if variant:
            platform["variant"] = variant
        entries.append(
            {
                "mediaType": MANIFEST,
                "digest": digest_of(data),
                "size": len(data),
                "platform": platform,
            }
        )
        if system != "unknown":
            shown = "/".join(part for part in (system, architecture, variant) if part)
            expected[shown] = digest_of(data)
    return push_manifest(url, name, tag, INDEX, {"manifests": entries}), expected


def test_one_architecture(registry: str) -> None:
    data = push_image(registry, "one/image", "v1", b"layer")
    assert resolve_tag("one/image", "v1", registry) == TagDigests(digest_of(data))


def test_an_index(registry: str, need: Callable[[bool, str], None]) -> None:
    data, platforms = push_index(registry, "two/image", "v1")
    found = resolve_tag("two/image", "v1", registry + "/")
    assert found.digest == digest_of(data)
    assert dict(found.platforms) == platforms
    assert set(platforms) == {"linux/amd64", "linux/arm64/v8"}
    need(shutil.which("skopeo") is not None, "no skopeo for a second opinion")
    place = f"docker://{registry.partition('//')[2]}/two/image:v1"
    raw = subprocess.run(
        ["skopeo", "inspect", "--tls-verify=false", "--raw", place],
        capture_output=True,
        check=True,
    ).stdout
    assert digest_of(raw) == found.digest


def test_a_loopback_name_needs_no_mirror(registry: str) -> None:
    data = push_image(registry, "own/image", "v1", b"layer")
    host = registry.partition("//")[2]
    assert resolve_tag(f"{host}/own/image", "v1").digest == digest_of(data)


@pytest.mark.parametrize(("name", "tag"), [("one/image", "v9"), ("no/image", "v1")])
def test_no_such_tag(name: str, tag: str, registry: str) -> None:
    with pytest.raises(NoSuchTag, match=f"{name}:{tag}: .*HTTP 404"):
        resolve_tag(name, tag, registry)


# The whole command on a real registry


def project(tmp_path: Path) -> Path:
    """A copy of the tools with a releases.toml of their own, which may be written."""
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "releases.toml").write_text(GOOD)
    shutil.copytree(
        PROJECT / "tools",
        tmp_path / "kit" / "tools",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return tmp_path / "kit"


def run_pins(kit: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(kit / "tools" / "pins.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command(registry: str, tmp_path: Path) -> None:
    kit = project(tmp_path)
    file = kit / "releases.toml"
    moved, _ = push_index(registry, "vllm/vllm-openai", "v0.25.0")
    done = run_pins(kit, "--registry", registry)
    assert done.returncode == 2
    assert "vllm-openai-rocm:v0.25.0: not resolved: " in done.stdout
    rocm = push_image(registry, "vllm/vllm-openai-rocm", "v0.25.0", b"rocm")
    (cann,) = load_releases(file).find("0.25").cann
    repository = cann.name.partition("/")[2]
    below = push_image(registry, repository, cann.tag, b"cann")
    done = run_pins(kit, "--registry", registry, "--version", "0.25")
    assert done.returncode == 1
    assert f"v0.25.0: {digest_of(moved)} has moved\n  pinned: sha256:fc5" in done.stdout
    assert f"v0.25.0: {digest_of(rocm)} has no digest" in done.stdout
    assert "  linux/arm64/v8: sha256:" in done.stdout
    assert "--write" in done.stderr
    assert file.read_text() == GOOD
    # Missing ones are written; a pin is not replaced unless that is said as well.
    done = run_pins(kit, "--registry", registry, "--write")
    assert done.returncode == 1
    assert [image.digest for image in load_releases(file).find("0.25").image] == [
        load_releases().find("0.25").image[0].digest,
        digest_of(rocm),
    ]
    assert load_releases(file).find("0.25").cann[0].digest == digest_of(below)
    done = run_pins(kit, "--registry", registry, "--write", "--moved")
    assert (done.returncode, done.stderr) == (0, f"{file}: 1 digests written\n")
    done = run_pins(kit, "--registry", registry, "--format", "json")
    assert done.returncode == 0
    assert [(entry["state"], entry["digest"]) for entry in json.loads(done.stdout)] == [
        ("as-pinned", digest_of(moved)),
        ("as-pinned", digest_of(rocm)),
        ("as-pinned", digest_of(below)),
    ]


def test_a_pin_of_one_architecture_counts(registry: str) -> None:
    _, platforms = push_index(registry, "three/image", "v1")
    image = BaseImage(
        name="three/image",
        tag="v1",
        package_root=ROOT,
        digest=platforms["linux/amd64"],
    )
    images = {"image": (image,), "cann": ()}
    release = load_releases().find("0.25").model_copy(update=images)
    assert [pin.state for pin in resolve_pins([release], registry)] == ["as-pinned"]


def test_no_registry(tmp_path: Path) -> None:
    done = run_pins(PROJECT, "--registry", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 2
    assert "no registry answers at http://127.0.0.1:" in done.stderr
    assert "hint: " in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--moved"], "--moved needs --write"),
        (["--version", "0.1"], "there are: "),
        (["--registry", "ftp://h"], "no URL of a registry"),
        (["--registry", "host:5000"], "no URL of a registry"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    done = run_pins(PROJECT, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# A registry that asks for a token, or misbehaves

IMAGE = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST}).encode()


class Fake:
    """What the server answers; ``asked`` has each path and its Authorization."""

    def __init__(self) -> None:
        self.body = IMAGE
        self.kind = MANIFEST
        self.status = 200
        self.said: str | None = None
        self.challenge = ""
        self.wanted = ""
        self.token = b'{"token": "t0k3n"}'
        self.asked: list[tuple[str, str]] = []
        self.url = ""


@pytest.fixture
def fake() -> Iterator[Fake]:
    state = Fake()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_args: object) -> None:
            pass

        def do_GET(self) -> None:
            sent = self.headers.get("Authorization", "")
            state.asked.append((self.path, sent))
            headers, status, body = {}, state.status, state.body
            if self.path.startswith("/token"):
                status, body = 200, state.token
            elif state.challenge and sent != state.wanted:
                status, body = 401, b""
                headers["WWW-Authenticate"] = state.challenge
            elif state.said is not None:
                headers["Docker-Content-Digest"] = state.said
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Type", state.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def log_in(tmp_path: Path, host: str) -> str:
    """As `docker login` leaves it; returns the Authorization that it stands for."""
    sent = base64.b64encode(f"me:{SECRET}".encode()).decode()
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(
        json.dumps({"auths": {host: {"auth": sent}}})
    )
    return f"Basic {sent}"


@pytest.mark.parametrize("key", ["token", "access_token"])
def test_a_token_is_fetched(key: str, fake: Fake) -> None:
    scope = "repository:a/b:pull"
    fake.challenge = f'Bearer realm="{fake.url}/token",service="s",scope="{scope}"'
    fake.wanted = "Bearer t0k3n"
    fake.token = json.dumps({key: "t0k3n"}).encode()
    assert resolve_tag("a/b", "v1", fake.url).digest == digest_of(IMAGE)
    assert [path for path, _ in fake.asked] == [
        "/v2/a/b/manifests/v1",
        "/token?service=s&scope=repository%3Aa%2Fb%3Apull",
        "/v2/a/b/manifests/v1",
    ]
    assert fake.asked[1][1] == ""


def test_the_users_login_is_used(fake: Fake, tmp_path: Path) -> None:
    sent = log_in(tmp_path, fake.url.partition("//")[2])
    fake.challenge, fake.wanted = 'Basic realm="r"', sent
    assert resolve_tag("a/b", "v1", fake.url).digest == digest_of(IMAGE)
    fake.challenge = f'Bearer realm="{fake.url}/token"'
    fake.wanted = "Bearer t0k3n"
    fake.asked.clear()
    assert resolve_tag("a/b", "v1", fake.url).digest == digest_of(IMAGE)
    assert fake.asked[1] == ("/token", sent)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_login_is_not_sent_in_clear_text(scheme: str, fake: Fake) -> None:
    """A registry reached by TLS names a realm without: asked, but without the login."""
    answer = requests.Response()
    answer.url = f"{scheme}://registry.invalid/v2/"
    answer.headers["WWW-Authenticate"] = f'Bearer realm="{fake.url}/token"'
    with requests.Session() as session:
        registry_module._log_in(session, answer, ("me", SECRET))
    ((path, sent),) = fake.asked
    assert path == "/token"
    assert bool(sent) == (scheme == "http")


@pytest.mark.parametrize(
    "challenge", ["", "Basic realm=x", "Bearer", "Bearer realm=", "Negotiate x"]
)
def test_no_way_in(challenge: str, fake: Fake) -> None:
    fake.challenge, fake.wanted = challenge or "None", "never"
    with pytest.raises(NoSuchTag, match="HTTP 401") as caught:
        resolve_tag("a/b", "v1", fake.url)
    assert "docker login" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": 500}, "answers HTTP 500"),
        ({"status": 429}, "answers HTTP 429"),
        ({"status": 403}, "HTTP 403"),
        ({"body": b"<html>", "kind": "text/html"}, "no manifest of a kind"),
        ({"body": b"[]"}, "no manifest of a kind"),
        ({"body": b"{}", "kind": "application/json"}, "no manifest of a kind"),
        ({"body": b"{}", "kind": INDEX}, "no manifest of a kind"),
        ({"body": b'{"manifests": [{}]}', "kind": INDEX}, "no manifest of a kind"),
        ({"body": b'{"manifests": 3}', "kind": INDEX}, "no manifest of a kind"),
        ({"said": NEW}, f"says {NEW} and sends sha256:"),
    ],
    ids=str,
)
def test_a_misbehaving_registry(change: dict[str, Any], said: str, fake: Fake) -> None:
    vars(fake).update(change)
    with pytest.raises(EnvironmentProblem, match=said) as caught:
        resolve_tag("a/b", "v1", fake.url)
    assert "\n" not in str(caught.value)


def test_a_token_that_is_none(fake: Fake) -> None:
    fake.challenge = f'Bearer realm="{fake.url}/token"'
    fake.wanted, fake.token = "never", b"<html>"
    with pytest.raises(EnvironmentProblem, match="no registry answers"):
        resolve_tag("a/b", "v1", fake.url)


@pytest.mark.parametrize("name", ["http://a/b", "-bad-.com/x"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError):
        resolve_tag(name, "v1")


# Writing


def pin_of(releases: Releases, which: int, digest: str) -> Pin:
    image = releases.find("0.25").image[which]
    return Pin("0.25", image, "not-pinned", TagDigests(digest))


@pytest.mark.parametrize("which", [0, 1])
def test_only_the_digest_changes(which: int, tmp_path: Path) -> None:
    file = tmp_path / "releases.toml"
    file.write_text(GOOD)
    releases = load_releases(file)
    write_pins(file, [pin_of(releases, which, NEW)])
    before, after = GOOD.split("\n"), file.read_text().split("\n")
    removed = [line for line in before if line not in after]
    added = [line for line in after if line not in before]
    assert added == [f'digest = "{NEW}"']
    assert len(removed) == 1 - which
    assert load_releases(file).find("0.25").image[which].digest == NEW


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('digest = "sha256:fc5', "digest='sha256:fc5"),
        ('digest = "', ' digest  =  "'),
        ('tag = "v0.25.0"', 'tag = "v0.25.0" # the tag'),
        ('[[release."0.25".image]]', '[[ release . "0.25" . image ]] # one'),
    ],
)
def test_other_layouts(old: str, new: str, tmp_path: Path) -> None:
    text = GOOD.replace(old, new)
    if "'" in new:
        text = text.replace('07cb"', "07cb' # here")
    file = tmp_path / "releases.toml"
    file.write_text(text)
    releases = load_releases(file)
    write_pins(file, [pin_of(releases, i, NEW[:-1] + str(i)) for i in (0, 1)])
    images = load_releases(file).find("0.25").image
    assert [image.digest for image in images] == [NEW[:-1] + "0", NEW[:-1] + "1"]
    assert ("# here" in file.read_text()) == ("'" in new)


def test_a_layout_that_cannot_be_written(tmp_path: Path) -> None:
    """Inline tables: refused, with the file as it was."""
    start = GOOD.index('[[release."0.25".image]]')
    end = GOOD.index("# What `make image BASE=local`")
    inline = f'image = [{{name = "a/b", tag = "v1", package_root = "{ROOT}"}}]\n'
    text = (GOOD[:start] + GOOD[end:]).replace("python = ", f"{inline}python = ", 1)
    file = tmp_path / "releases.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match="could not be put in"):
        write_pins(file, [pin_of(load_releases(file), 0, NEW)])
    assert file.read_text() == text
