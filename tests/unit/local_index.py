"""A package index on the loopback interface, with every way in which one can fail."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from patchkit.releases import Release, Sdist

FILE = "vllm-1.0.tar.gz"
FILES = {
    "pyproject.toml": b"[tool.ruff]\nline-length = 88\n",
    "m.py": b"a = 1\nb = 2\nc = 3\nd = 4\ne = 5\nf = 6\n",
    "vllm/__init__.py": b"",
    "vllm/run.sh": b"#!/bin/sh\n",
}


def make_sdist(
    files: Mapping[str, bytes] = FILES,
    links: Mapping[str, str] | None = None,
    top: str = "vllm-1.0",
) -> bytes:
    """A gzipped tar as a build back end writes it; ``*.sh`` files are executable."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        folder = tarfile.TarInfo(top)
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for path, data in files.items():
            info = tarfile.TarInfo(f"{top}/{path}")
            info.size = len(data)
            info.mode = 0o755 if path.endswith(".sh") else 0o644
            tar.addfile(info, io.BytesIO(data))
        for path, where in (links or {}).items():
            info = tarfile.TarInfo(f"{top}/{path}")
            info.type = tarfile.SYMTYPE
            info.linkname = where
            tar.addfile(info)
    return buffer.getvalue()


def pin(data: bytes, directory: str = "patches/v1") -> Release:
    """A release 1 whose only pinned sdist is ``data``."""
    sha256 = hashlib.sha256(data).hexdigest()
    return Release(
        name="1",
        versions=("1.0",),
        directory=directory,
        python="3.12",
        torch="2",
        sdist=(Sdist(version="1.0", file=FILE, sha256=sha256),),
    )


@dataclass
class Index:
    """What the server does, and what it was asked for."""

    data: bytes = b""
    status: int = 200  # of the project's page
    file_status: int = 200
    listed: str | None = None  # sha256 on the page; None: no digest there
    cut: int | None = None  # send so many bytes of the file and hang up
    chunked: bool = False  # announce no length
    page: bytes | None = None
    page_type: str = "text/html"
    user: str = ""  # name:password that both page and file ask for
    delay: float = 0.0  # seconds before the page
    absolute: bool = False  # link to the file by its whole URL
    asked: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple"


def _handler(index: Index) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_args: object) -> None:
            pass

        def do_GET(self) -> None:
            index.asked.append(self.path)
            sent = self.headers.get("Authorization", "").removeprefix("Basic ")
            if index.user and base64.b64decode(sent).decode() != index.user:
                self.answer(401, b"", "text/plain")
            elif self.path == "/simple/vllm/":
                time.sleep(index.delay)
                self.answer(index.status, self.page(), index.page_type)
            elif self.path == f"/files/{FILE}":
                self.send_file()
            else:
                self.answer(404, b"", "text/plain")

        def page(self) -> bytes:
            if index.page is not None:
                return index.page
            link = f"http://127.0.0.1:{index.port}" if index.absolute else "../.."
            digest = f"#sha256={index.listed}" if index.listed else ""
            return f'<a href="{link}/files/{FILE}{digest}">{FILE}</a>'.encode()

        def answer(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def send_file(self) -> None:
            self.send_response(index.file_status)
            if not index.chunked:
                self.send_header("Content-Length", str(len(index.data)))
            self.end_headers()
            self.wfile.write(index.data[: index.cut])

    return Handler


@contextlib.contextmanager
def serving(index: Index) -> Iterator[Index]:
    """Serve ``index`` on a free port while the body runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(index))
    index.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
