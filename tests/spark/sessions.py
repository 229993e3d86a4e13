"""Real Spark for tests: one embedded session and one standalone cluster.

Whatever starts a JVM is shared by the whole run; ``tests/conftest.py`` makes it known.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.spark.driving import SLOTS

from millstream.testing.standalone import StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["cluster", "spark"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give a session of the user's with four slots, in this process."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - seconds of imports

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(f"local[{SLOTS}]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[StandaloneCluster]:
    """Give a master and two workers with one core each."""
    standalone = _running_cluster()
    yield standalone
    standalone.__exit__(None, None, None)


@cache
def _running_cluster() -> StandaloneCluster:
    return StandaloneCluster(workers=2, cores=1, memory="1g").__enter__()
