"""A sink a thousand times slower than its source: back-pressure, not memory, takes it.

Method: two real processes; one reads an endless source of rows of 1 KiB and does nothing
else, the other has a sink that takes a few rows a second.  What is between the two must
stay within the credit of the channel, and the processes must stay small.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import psutil
import pytest

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.fault

ROW = b"x" * 1024
CREDIT_BYTES = 256 * 1024
GROWTH_BYTES_MAX = 64 * 1024 * 1024


def rows(rank: int, size: int) -> Iterable[bytes]:
    del size
    return itertools.repeat(ROW) if rank == 1 else ()


def dawdle(row: bytes) -> None:
    del row
    threading.Event().wait(0.02)


def test_slow_sink_stops_the_source_and_not_the_machine() -> None:
    """The source waits; nobody buffers what nobody takes."""
    flow = ms.Flow("slow-sink")
    flow.from_parallel(rows).for_each(dawdle)
    job = flow.start(
        on="processes",
        workers=2,
        channel_credit_bytes=CREDIT_BYTES,
        buffer=ms.fixed(8),
        source_batch_rows=8,
    )
    pause = threading.Event()
    try:
        while job.metrics()[1].rows_in < 50:
            assert not job.wait(0.05), "the flow is endless"
        before = [psutil.Process(pid).memory_info().rss for pid in job.worker_pids()]
        read_before = job.metrics()[0].rows_in
        pause.wait(4)
        after = [psutil.Process(pid).memory_info().rss for pid in job.worker_pids()]
        read_after = job.metrics()[0].rows_in
    finally:
        job.cancel()
        with pytest.raises(ms.JobCancelledError):
            job.wait()

    assert max(b - a for a, b in zip(before, after, strict=True)) < GROWTH_BYTES_MAX
    # Four seconds of an unhindered source would be millions of rows.
    assert read_after - read_before < 20_000
