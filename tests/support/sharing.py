"""Which tests run in one process, when several processes share the tests.

What takes seconds to start (Spark's JVM, a cluster, a database, an object store) is
started once for all tests that ask for it; every other test goes to whoever is free.  The
controller of pytest-xdist knows the ids of tests and nothing else, so the processes write
down which test asks for which server, in a file that the controller names.  xdist's own
way, the mark `xdist_group`, is lost on pytest 9.2 (pytest-xdist#1386).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

__all__ = ["Sharing", "name_file", "remove_file", "server_of", "write_down"]

_FILE = "MILLSTREAM_TESTS_SERVERS"
_BY_FIXTURE = {
    "two_host_cluster": "two hosts",
    "cluster": "cluster",
    "spark": "spark",
    "postgres_server": "postgres",
    "object_server": "s3",
}
"""The servers by the fixtures that start them, the one that takes longest first."""
_BY_PARAMETER = ("spark", "postgres", "s3")
"""A fixture with such a parameter asks for the server when it is made."""


def server_of(nodeid: str, fixtures: Iterable[str]) -> str | None:
    """Return which server a test asks for, by its fixtures or its parameters."""
    _, _, parameters = nodeid.partition("[")
    words = set(re.split(r"[\[\]-]", parameters))
    asked = [server for fixture, server in _BY_FIXTURE.items() if fixture in fixtures]
    asked += [server for server in _BY_PARAMETER if server in words]
    return asked[0] if asked else None


def name_file() -> None:
    """Say where the processes that will be started write down what tests ask for."""
    os.environ[_FILE] = f"{tempfile.gettempdir()}/tests-servers-{os.getpid()}.json"


def remove_file() -> None:
    """Leave nothing behind."""
    Path(os.environ[_FILE]).unlink(missing_ok=True)


def write_down(items: Iterable[pytest.Item]) -> None:
    """Tell the controller which tests ask for a server."""
    path = Path(os.environ[_FILE])
    servers = {
        item.nodeid: server
        for item in items
        if (server := server_of(item.nodeid, getattr(item, "fixturenames", ())))
    }
    own = path.with_suffix(f".{os.getpid()}")
    own.write_text(json.dumps(servers))
    own.replace(path)


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # as it has no types
    """Gives each process a test after the other, or all tests of one server."""

    _servers: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._servers is None:
            self._servers = json.loads(Path(os.environ[_FILE]).read_text())
        return self._servers.get(nodeid, nodeid)
