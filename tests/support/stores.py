"""Stores behind URLs, for tests of connectors: in memory, on S3's protocol, on HTTP.

The object store is a real server in a process of its own, so that the workers of every
launcher reach it; it is started once for the whole run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    IsAllowed = Callable[[str, str], bool]

__all__ = ["STORES", "Store", "object_server", "serving", "store"]

STORES = [
    pytest.param("memory", id="memory"),
    pytest.param("s3", id="s3", marks=pytest.mark.slow),
]


@dataclass(frozen=True, slots=True)
class Store:
    """A place of its own for one test."""

    url: str
    system: Any

    def put(self, name: str, content: bytes) -> str:
        """Write a file; return its URL."""
        self.system.pipe_file(f"{self.url}/{name}", content)
        return f"{self.url}/{name}"

    def found(self, name: str = "") -> dict[str, bytes]:
        """Return all files below a directory, hidden ones too."""
        self.system.invalidate_cache()
        inner = self.system._strip_protocol(f"{self.url}/{name}").rstrip("/")
        return {
            path.removeprefix(f"{inner}/"): self.system.cat_file(path)
            for path in self.system.find(inner)
        }


@pytest.fixture(scope="session")
def object_server() -> Iterator[str]:
    """Return the address of a server that speaks S3's protocol."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        lines = iter(server.stderr.readline, "")
        address = next(
            re.search(r"http://\S+", line) for line in lines if "http" in line
        )
        # Nobody reads its log any more, and a full pipe would stop it.
        threading.Thread(target=server.stderr.read, daemon=True).start()
        try:
            assert address is not None
            yield address[0]
        finally:
            server.terminate()


@pytest.fixture
def store(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Store:
    """Return an empty place in memory, or in a bucket, as the test asks."""
    kind = getattr(request, "param", "memory")
    if kind == "memory":
        return Store(f"memory://{tmp_path.name}", fsspec.filesystem("memory"))
    environment = {
        "AWS_ENDPOINT_URL": request.getfixturevalue("object_server"),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    # One that was made for another test may speak to another server.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    # An instance of its own: what it changes, the code under test has to see by itself.
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    bucket = re.sub("[^a-z0-9]", "-", tmp_path.name.lower()).strip("-")
    system.mkdir(bucket)
    return Store(f"s3://{bucket}/place", system)


class _Ranges(SimpleHTTPRequestHandler):
    """Serves files, and parts of them if a client asks for bytes.

    Parameters
    ----------
    is_allowed
        Whether a request with this path and these credentials may have the file.
    """

    def __init__(
        self, *arguments: Any, is_allowed: IsAllowed | None = None, **options: Any
    ) -> None:
        self._is_allowed = is_allowed
        super().__init__(*arguments, **options)

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        allowed, given = self._is_allowed, self.headers.get("Authorization", "")
        if allowed is None or allowed(self.path, given):
            return True
        self.send_error(401)
        return False

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            super().do_GET()
            return
        first, last = int(wanted[1]), int(wanted[2])
        with open(self.translate_path(self.path), "rb") as file:  # noqa: PTH123
            content = file.read()
        part = content[first : last + 1]
        self.send_response(206)
        end = first + len(part) - 1
        self.send_header("Content-Range", f"bytes {first}-{end}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def end_headers(self) -> None:
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()


class _NoRanges(SimpleHTTPRequestHandler):
    """Serves whole files only."""

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(
    directory: Path, *, ranges: bool = True, is_allowed: IsAllowed | None = None
) -> Iterator[str]:
    """Serve the files of a directory; the value is the URL."""
    handler: Any = partial(_NoRanges, directory=str(directory))
    if ranges:
        handler = partial(_Ranges, directory=str(directory), is_allowed=is_allowed)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
