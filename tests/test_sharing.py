"""Tests that share what is slow to start run in one process."""

from __future__ import annotations

import pytest
from tests.sharing import scope_of


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("tests/test_frames.py::test_same_everywhere[spark]", "spark"),
        ("tests/test_every_launcher.py::test_flow[keyed-spark-2]", "spark"),
        ("tests/spark/test_session.py::test_speculation_is_refused", "spark"),
        ("tests/spark/test_launching.py::test_without_java", "cluster"),
        ("tests/unit/connectors/test_sql.py::test_upsert[postgres-1]", "postgres"),
        ("tests/unit/connectors/test_remote.py::test_rows[csv-s3]", "s3"),
    ],
)
def test_one_server_is_one_scope(nodeid: str, scope: str) -> None:
    """A second JVM costs as much as hundreds of small tests."""
    assert scope_of(nodeid) == scope


@pytest.mark.parametrize(
    "nodeid",
    [
        "tests/simulation/test_swarm.py::test_flow[word_count]",
        "tests/unit/launch/test_spark.py::test_spark",
        "tests/test_frames.py::test_same_everywhere[processes]",
    ],
)
def test_every_other_test_goes_to_whoever_is_free(nodeid: str) -> None:
    """A file of slow tests is shared by all processes."""
    assert scope_of(nodeid) == nodeid
