"""Threads of Polars: the workers of one machine share its cores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import polars as pl

import millstream as ms

if TYPE_CHECKING:
    import pytest

VARIABLE = "POLARS_MAX_THREADS"


def thread_counts() -> set[int]:
    """Return how many threads Polars has in each of two workers."""
    flow = ms.Flow("threads")
    frame = flow.from_frame(pl.DataFrame({"n": [0, 0]}))
    counts = frame.map_batches(
        lambda batch: batch.with_columns(n=pl.lit(pl.thread_pool_size(), pl.Int64))
    ).collect()
    flow.run(on="processes", workers=2)
    return set(counts.result()["n"])


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each would start a thread per core, and they would stand in line."""
    monkeypatch.delenv(VARIABLE, raising=False)

    assert thread_counts() == {max(1, (os.cpu_count() or 1) // 2)}


def test_a_number_of_threads_that_was_set_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever sets the variable knows the machine better."""
    monkeypatch.setenv(VARIABLE, "3")

    assert thread_counts() == {3}
