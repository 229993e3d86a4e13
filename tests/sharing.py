"""Which tests run in one process, when several processes share the tests.

What takes seconds to start (Spark's JVM, a database, an object store) is started once
for all tests that ask for it; every other test goes to whoever is free.  The controller
of pytest-xdist knows the ids of tests and nothing else, so that ids decide.  Its own way,
the mark `xdist_group`, is lost on pytest 9.2 (pytest-xdist#1386).
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

__all__ = ["Sharing", "scope_of"]

_SERVERS = {"postgres", "s3", "spark"}
_SPARK = "tests/spark/"
_CLUSTER = "tests/spark/test_launching.py"


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # as it has no types
    """Gives each process a test after the other, or all tests of one server."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """Return what a test shares with others: a server, or nothing but its own id."""
    file, _, test = nodeid.partition("::")
    if file == _CLUSTER:
        return "cluster"
    if file.startswith(_SPARK):
        return "spark"
    return min(_SERVERS.intersection(re.split(r"[\[\]-]", test)), default=nodeid)
