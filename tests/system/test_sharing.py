"""Tests that share what is slow to start run in one process."""

from __future__ import annotations

import pytest
from tests.support.sharing import server_of


@pytest.mark.parametrize(
    ("nodeid", "fixtures", "server"),
    [
        ("tests/system/test_frames.py::test_same[spark]", ["launcher"], "spark"),
        ("tests/system/test_every_launcher.py::test_flow[keyed-spark-2]", [], "spark"),
        ("tests/spark/test_session.py::test_speculation", ["spark"], "spark"),
        ("tests/faults/test_kills.py::test_executor", ["cluster"], "cluster"),
        ("tests/spark/test_launching.py::test_it", ["spark", "cluster"], "cluster"),
        ("tests/spark/test_two_hosts.py::test_it", ["two_host_cluster"], "two hosts"),
        ("tests/unit/connectors/test_sql.py::test_upsert[postgres-1]", [], "postgres"),
        ("tests/unit/connectors/test_remote.py::test_rows[csv-s3]", ["store"], "s3"),
        ("tests/simulation/test_swarm.py::test_flow[word_count]", [], None),
        ("tests/unit/launch/test_spark.py::test_spark", ["tmp_path"], None),
        ("tests/system/test_frames.py::test_same[processes]", ["launcher"], None),
    ],
)
def test_one_server_is_one_scope(
    nodeid: str, fixtures: list[str], server: str | None
) -> None:
    """A second JVM costs as much as hundreds of small tests."""
    assert server_of(nodeid, fixtures) == server
