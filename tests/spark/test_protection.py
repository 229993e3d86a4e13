"""Workers that are Spark tasks get their certificate with their bootstrap."""

from __future__ import annotations

from typing import Any

import pytest

import millstream as ms
from millstream.launch import bootstrapping
from millstream.protocol.handshake import Protection

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("protection", list(Protection), ids=lambda each: each.name)
def test_tasks_of_spark_are_protected_twice_in_a_row(
    spark: Any, monkeypatch: pytest.MonkeyPatch, protection: Protection
) -> None:
    """The second job has another secret and another certificate."""
    monkeypatch.setattr(
        bootstrapping, "protection_of", lambda *_, is_insecure: protection
    )
    for _ in range(2):
        flow = ms.Flow("sums")
        numbers = flow.from_parallel(lambda rank, size: range(rank, 1000, size))
        sums = numbers.group_by(lambda i: i % 7).sum().collect()

        flow.run(spark=spark, workers=2)

        assert dict(sums.result()) == {k: sum(range(k, 1000, 7)) for k in range(7)}
