"""What Spark gets to carry: the secret of a job is in no file, and in no open network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.launch.bootstrapping import Bootstrapper
from millstream.launch.spark import _Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.launch.worker_main import Bootstrap
    from millstream.protocol.ids import PeerId

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS = 300_000
"""More than PySpark leaves in a closure, which it then writes to a file."""


@pytest.fixture
def handed_out(monkeypatch: pytest.MonkeyPatch) -> list[Bootstrap]:
    """Return the bootstraps that workers get."""
    found: list[Bootstrap] = []
    made = Bootstrapper.bootstrap

    def bootstrap(self: Bootstrapper, worker: PeerId) -> Bootstrap:
        found.append(made(self, worker))
        return found[-1]

    monkeypatch.setattr(Bootstrapper, "bootstrap", bootstrap)
    return found


def files_of(spark: SparkSession) -> list[bytes]:
    """Return all that Spark's driver has written to its temporary directory."""
    root = Path(str(spark.sparkContext._temp_dir)).parent
    return [path.read_bytes() for path in root.rglob("*") if path.is_file()]


def test_the_secret_of_a_large_flow_is_in_no_file(
    spark: SparkSession, handed_out: list[Bootstrap], tmp_path: Path
) -> None:
    """Twice in a row, with a state directory, whose key travels the same way."""
    rows = list(range(ROWS))
    for run in range(2):
        flow = ms.Flow("large")
        total = flow.from_iterable(rows).reduce(lambda one, other: one + other)
        flow.run(spark=spark, workers=2, state=tmp_path / f"state-{run}")

        assert total.result() == sum(rows)
    keys = [(tmp_path / f"state-{run}" / "key").read_bytes() for run in range(2)]
    found = files_of(spark)

    assert len(handed_out) == 4
    assert len(handed_out[0].deployment) > 2**19
    for secret in (*(each.secret for each in handed_out), *keys):
        assert secret
        assert not any(secret in data for data in found)


def test_the_flow_is_removed_with_the_job(
    spark: SparkSession, handed_out: list[Bootstrap]
) -> None:
    """It may hold rows of the user's."""
    marked = [b"a-row-of-the-user" + str(i).encode() for i in range(20_000)]
    flow = ms.Flow("large")
    rows = flow.from_iterable(marked).collect()
    flow.run(spark=spark, workers=2)

    assert sorted(rows.result()) == sorted(marked)
    assert marked[7] in handed_out[0].deployment
    assert not any(marked[7] in data for data in files_of(spark))


def test_what_a_session_says_does_not_open_the_gate(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A builder gives its settings to a session whose context has none of them."""
    told = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.driver.host": "192.0.2.7",
    }
    session = spark.newSession()
    monkeypatch.setattr(_Cluster, "is_here", property(lambda _self: False))
    cluster = _Cluster(session)

    def setting(key: str, default: str) -> Any:
        return told.get(key, default)

    monkeypatch.setattr(cluster, "setting", setting)
    with pytest.raises(
        ms.UsageError, match=r"192\.0\.2\.7.*without authentication and"
    ):
        cluster.check(is_insecure=False)
    cluster.check(is_insecure=True)
