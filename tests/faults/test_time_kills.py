"""Workers that are killed while windows, joins and timers wait for their time.

Method: a source with two splits, some of whose rows are late, waits for a moment before
every row until a file says that there is a hurry.  Both workers are killed in turn, each
when a snapshot has rows that wait; the rows must be those of plain Python.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.spark.driving import eventually
from tests.test_timed_loops import laps

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

COUNT, KEYS = 600, 7
SIZE, SLIDE, DISORDER = 40, 20, 6
REACH = 5
Row = tuple[int, int]
"""Key and timestamp."""


def row(number: int) -> Row:
    """Return a row; every twentieth is far behind."""
    behind = 60 if number % 20 == 19 else number * 7 % DISORDER
    return number % KEYS, 3 * number - behind


def rows_of(rank: int, size: int) -> list[Row]:
    return [row(number) for number in range(rank, COUNT, size)]


def slowly(hurry: Path) -> Callable[[int, int], Iterator[Row]]:
    """Return a source that takes its time until the file is there."""

    def rows(rank: int, size: int) -> Iterator[Row]:
        for each in rows_of(rank, size):
            if not hurry.exists():
                threading.Event().wait(0.01)
            yield each

    return rows


def promised() -> Iterator[tuple[Row, int]]:
    """Yield every row with what its split had promised before it."""
    for rank in range(2):
        promise = -(10**9)
        for key, time in rows_of(rank, 2):
            yield (key, time), promise
            promise = max(promise, time - DISORDER - 1)


def windows_in_python() -> tuple[Counter[Any], Counter[Row]]:
    counts: Counter[Any] = Counter()
    late: Counter[Row] = Counter()
    for (key, time), promise in promised():
        last = time // SLIDE * SLIDE
        ends = [start + SIZE for start in range(last - SIZE + SLIDE, last + 1, SLIDE)]
        taken = [end for end in ends if end - 1 > promise]
        counts.update((key, end) for end in taken)
        late.update([] if taken else [(key, time)])
    return counts, late


class Silence(ms.StatefulFunction[int, Row, Row]):
    """Tell when a key was silent for long, and how many rows it had had."""

    seen = ms.ValueState(default=0)

    def on_record(self, key: int, value: Row) -> None:
        self.seen.update(self.seen.get() + 1)
        self.timers.at_event_time(10_000 + key)

    def on_timer(self, key: int, timer: ms.Timer) -> Iterator[Row]:
        yield key, timer.time * 1_000 + self.seen.get()


def killed_in_turn(job: ms.Job, hurry: Path) -> None:
    """Kill every worker there was at first, each when there are new snapshots."""
    for pid in job.worker_pids():
        epoch, recoveries = job.epoch + 3, len(job.recoveries())
        eventually(partial(has_come, job, epoch, recoveries))
        os.kill(pid, signal.SIGKILL)
        eventually(partial(has_come, job, epoch, recoveries + 1))
    hurry.touch()
    assert job.wait()
    assert all(recovery.epoch > 0 for recovery in job.recoveries())


def has_come(job: ms.Job, epoch: int, recoveries: int) -> bool:
    return job.epoch >= epoch and len(job.recoveries()) >= recoveries


def test_time_goes_on_where_it_was_after_kills(
    place: dict[str, Any], tmp_path: Path
) -> None:
    """Windows, also behind a loop, late rows, pairs and timers are there once."""
    hurry = tmp_path / "hurry"
    flow = ms.Flow("killed")
    source = flow.from_parallel(slowly(hurry))
    timed = source.event_time(lambda row: row[1], disorder=DISORDER)
    keyed = timed.key_by(lambda row: row[0])
    sliding = ms.windows.sliding(SIZE, SLIDE)
    counts = keyed.window(sliding).with_window().count()
    late, windows = counts.late().collect(), counts.collect()
    frame = timed.map(lambda row: {"key": row[0]}).to_frame({"key": pl.Int64})
    framed = frame.group_by("key").window(sliding).agg(n=pl.len()).collect()
    on_time = keyed.filter(lambda row: (row[1] + row[0]) % 3 != 0)
    pairs = on_time.interval_join(keyed, -REACH, REACH).collect()
    silent = keyed.process(Silence()).collect()
    turned = timed.map(lambda row: (row, row[1] % 4)).loop(laps)
    behind = turned.key_by(lambda row: row[0]).window(sliding).with_window()
    looped = behind.count().collect()
    state = tmp_path / "state"
    job = flow.start(**place, state=state, snapshot_every_ms=50)

    killed_in_turn(job, hurry)

    right, too_late = windows_in_python()
    assert {(k, w.end): n for k, (w, n) in windows.result()} == right
    assert Counter(each.value for each in late.result()) == too_late
    assert {(k, e): n for k, _, e, n in framed.result().iter_rows()} == right
    assert {(k, w.end): n for k, (w, n) in looped.result()} == right
    assert Counter(pairs.result()) == calm_pairs()
    seen = Counter(row(number)[0] for number in range(COUNT))
    ends = {(key, (10_000 + key) * 1_000 + seen[key]) for key in range(KEYS)}
    assert sorted(pair for _, pair in silent.result()) == sorted(ends)


def calm_pairs() -> Counter[Any]:
    """Return the pairs of a run that nobody disturbs."""
    flow = ms.Flow("calm")
    timed = flow.from_parallel(rows_of).event_time(
        lambda row: row[1], disorder=DISORDER
    )
    keyed = timed.key_by(lambda row: row[0])
    on_time = keyed.filter(lambda row: (row[1] + row[0]) % 3 != 0)
    pairs = on_time.interval_join(keyed, -REACH, REACH).collect()
    flow.run(on="local", workers=2)
    return Counter(pairs.result())
