"""Loops with more under way than memory and credit allow: it waits on disk, and all ends.

Method: real jobs in this process, with limits so small that a batch or two fill them.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import eventually

import millstream as ms
from millstream.state.spill_buffer import SpillBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.state.spill_buffer import BufferedBatch

LEAVES = 2**14
"""Rows that the loop which amplifies makes of one."""
TIGHT: dict[str, Any] = {
    "loop_memory_bytes": 512,
    "channel_credit_bytes": 1024,
    "local_channel_batches": 1,
    "buffer": ms.fixed(64),
}


@pytest.fixture
def spilled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the rows of every batch that goes to disk while the test runs."""
    rows: list[int] = []
    put = SpillBuffer.put

    def watched(self: SpillBuffer, batch: Any) -> BufferedBatch:
        kept = put(self, batch)
        if kept.file is not None:
            rows.append(len(batch))
        return kept

    monkeypatch.setattr(SpillBuffer, "put", watched)
    return rows


def twice(rows: Any) -> tuple[Any, Any]:
    """Make two of every row, on any task, until there are enough."""
    made = rows.flat_map(lambda i: (2 * i, 2 * i + 1)).shuffle()
    return (
        made.filter(lambda i: i < LEAVES),
        made.filter(lambda i: i >= LEAVES),
    )


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_loop_that_amplifies_ends(workers: int, spilled: list[int]) -> None:
    """No task waits for room that only the task itself could make."""
    flow = ms.Flow("amplifying")
    leaves = flow.from_iterable([1]).loop(twice).collect()

    flow.run(on="local", workers=workers, **TIGHT)

    assert sorted(leaves.result()) == list(range(LEAVES, 2 * LEAVES))
    assert sum(spilled) > LEAVES // 4


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_rounds_that_amplify_end(workers: int, spilled: list[int]) -> None:
    """Heads keep a whole round, which is as large as the result at last."""
    flow = ms.Flow("amplifying-rounds")
    doubled = (
        flow.from_iterable([0])
        .iterate(
            lambda rows: rows.flat_map(lambda i: (2 * i, 2 * i + 1)).shuffle(),
            max_rounds=12,
        )
        .collect()
    )

    flow.run(on="local", workers=workers, **TIGHT)

    assert sorted(doubled.result()) == list(range(2**12))
    assert sum(spilled) > 2**12


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_round_of_a_cycle_sees_all_rows(workers: int, spilled: list[int]) -> None:
    """What is kept on disk is read again as often as there are rounds."""
    count, rounds = 5_000, 6
    begin: tuple[Any, ...] = ()
    flow = ms.Flow("spilled-cycle")
    sums = (
        flow.from_parallel(lambda rank, size: range(rank, count, size))
        .cycle(
            begin,
            lambda rows, state: rows.map(lambda i: i + len(state.value)),
            lambda state, rows: (*state, (len(rows), sum(rows))),
            max_rounds=rounds,
        )
        .collect()
    )

    flow.run(on="local", workers=workers, **TIGHT)

    total = sum(range(count))
    expected = tuple((count, total + number * count) for number in range(rounds))
    assert sums.result() == [expected]
    assert sum(spilled) > count // 2


def test_frames_of_a_cycle_wait_on_disk_as_well(spilled: list[int]) -> None:
    """A batch of either kind comes back as it was."""
    import polars as pl  # noqa: PLC0415 - the other tests need none

    flow = ms.Flow("spilled-frames")
    frame = pl.DataFrame({"x": range(10_000)})
    sums = (
        flow.from_frame(frame)
        .cycle(
            0,
            lambda rows, _: rows.select(pl.col("x") * 2),
            lambda state, made: state + int(made["x"].sum()),
            max_rounds=4,
        )
        .collect()
    )

    flow.run(on="local", workers=2, **TIGHT)

    assert sums.result() == [8 * sum(range(10_000))]
    assert sum(spilled) > 0


def ticks(rank: int, size: int) -> Iterator[tuple[int, int]]:
    pause = threading.Event()
    for number in itertools.count(rank, size):
        yield number, 0
        pause.wait(0.0005)


def lap(rows: Any) -> tuple[Any, Any]:
    """Let every number go round some times."""
    moved = rows.map(lambda pair: (pair[0], pair[1] + 1)).shuffle()
    return moved.filter(lambda pair: pair[1] < 5), moved.filter(
        lambda pair: pair[1] > 5
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_an_endless_loop_takes_snapshots_and_can_be_cancelled(
    workers: int, tmp_path: Path
) -> None:
    """It never ends by itself, and nothing holds it when it should."""
    flow = ms.Flow("endless-loop")
    flow.from_parallel(ticks).loop(lap).collect()
    job = flow.start(
        on="local", workers=workers, state=tmp_path, snapshot_every_ms=20, **TIGHT
    )

    eventually(lambda: job.epoch >= 3)
    job.cancel("enough")

    with pytest.raises(ms.JobCancelledError, match="enough"):
        job.wait()
    assert job.status() == "cancelled"
    assert len(job.snapshots()) >= 3
