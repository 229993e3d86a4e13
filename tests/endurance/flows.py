"""Five flows without an end, each with another kind of state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.endurance.paced import Ages, Paced

__all__ = ["JOBS", "Job"]

PRIME = 2_654_435_761
HOPS = 5
WINDOW_KEYS = 500
TIMER_MS, TTL = 1_000, "3s"


@dataclass(frozen=True, slots=True)
class Job:
    """How a flow is built and run.

    Attributes
    ----------
    build
        Makes the flow of a source, of what notes the ages of rows, and of a directory.
    rate
        Rows in each second.  A million keys must have come well before the warm-up ends.
    is_on_spark
        Whether it runs on Spark where there is one.
    """

    build: Callable[[Paced, Ages, Path, int], ms.Flow]
    rate: int
    every_ms: int
    backend: str = "memory"
    is_on_spark: bool = False


def counts(source: Paced, ages: Ages, directory: Path, keys: int) -> ms.Flow:
    """Count many keys."""
    flow = ms.Flow("counts")
    keyed = flow.read(source).key_by(lambda row: row[0] * PRIME % keys)
    counted = keyed.map_with_state(0, lambda count, row: (count + 1, row[1]))
    counted.drop_key().for_each(ages.note)
    return flow


def windows(source: Paced, ages: Ages, directory: Path, keys: int) -> ms.Flow:
    """Count in windows of event time, with state in RocksDB."""
    flow = ms.Flow("windows")
    timed = flow.read(source).event_time(lambda row: row[1], out_of_order="500ms")
    keyed = timed.key_by(lambda row: row[0] % WINDOW_KEYS)
    counted = keyed.window(ms.windows.tumbling("1s")).with_window().count()
    counted.drop_key().for_each(lambda result: ages.note(result[0].end + 500))
    return flow


class Silence(ms.StatefulFunction[int, Any, Any]):
    """Sends a pair on when nothing more has come for it; forgets it in a while."""

    seen = ms.MapState[int, int](ttl=TTL)
    last = ms.ValueState[int]()

    def on_record(self, key: int, value: Any) -> None:
        self.seen.update(key, 1)
        self.last.update(value[0][1])
        self.timers.after(TIMER_MS)

    def on_timer(self, key: int, timer: ms.Timer) -> Iterator[Any]:
        yield self.last.get()
        self.last.clear()


def joined(source: Paced, ages: Ages, directory: Path, keys: int) -> ms.Flow:
    """Join two streams of ever new keys, wait with timers, and write files."""
    flow = ms.Flow("joined")
    left = flow.read(source, name="left").key_by(lambda row: row[0])
    right = flow.read(source, name="right").key_by(lambda row: row[0])
    pairs = left.join(right, ttl=TTL).process(Silence(), name="silence").drop_key()

    def noted(due_ms: int) -> str:
        ages.note(due_ms + TIMER_MS)
        return str(due_ms)

    pairs.map(noted).write_text(directory / "out")
    return flow


def loop(source: Paced, ages: Ages, directory: Path, keys: int) -> ms.Flow:
    """Let every row go round a few times."""
    flow = ms.Flow("loop")

    def body(rows: ms.Stream[Any]) -> tuple[ms.Stream[Any], ms.Stream[Any]]:
        moved = rows.repartition_by(lambda row: row[0] + row[2])
        gone = moved.map(lambda row: (row[0], row[1], row[2] + 1))
        again = gone.filter(lambda row: row[2] < HOPS)
        return again, gone.filter(lambda row: row[2] >= HOPS)

    started = flow.read(source).map(lambda row: (*row, 0))
    started.loop(body).for_each(lambda row: ages.note(row[1]))
    return flow


def frames(source: Paced, ages: Ages, directory: Path, keys: int) -> ms.Flow:
    """Aggregate data frames in windows of event time."""
    flow = ms.Flow("frames")
    schema = {"number": pl.Int64, "due": pl.Int64}
    timed = flow.read(source).to_frame(schema).event_time("due", out_of_order="500ms")
    cut = timed.with_columns(key=pl.col("number") % WINDOW_KEYS).group_by("key")
    counted = cut.window(ms.windows.tumbling("1s"))
    results = counted.agg(n=pl.len(), total=pl.col("number").sum()).to_rows()
    results.for_each(lambda row: ages.note(row["window_end"] + 500))
    return flow


JOBS = {
    "counts": Job(counts, 5_000, 1_000),
    "windows": Job(windows, 1_000, 2_000, backend="rocksdb"),
    "joined": Job(joined, 300, 2_000, is_on_spark=True),
    "loop": Job(loop, 300, 2_000),
    "frames": Job(frames, 2_000, 1_000),
}
