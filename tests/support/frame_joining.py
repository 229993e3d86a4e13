"""Drive a join of frames as tasks would, beside the same join of rows.

The join of rows is the oracle: both get the same batches and hear the same times.  The
tasks of the join of frames are cut, thrown away and restored, at any width, while that of
rows goes on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
from tests.support.joining import SHARDS, TaskHarness
from tests.support.making import HERE

from millstream.config import Config
from millstream.operators.base import TickingOperator
from millstream.operators.build import TaskContext, build_chain
from millstream.plan.frame_joins import LATE_SIDE, JoinFrameStreams
from millstream.plan.frame_windows import ORIGIN_WATERMARK, TIME
from millstream.plan.frames import JoinFrames
from millstream.plan.joins import LEFT
from millstream.plan.logical import Node
from millstream.plan.time import LateTimestamp
from millstream.protocol.ids import Epoch
from millstream.state.compaction import Merging, merged
from millstream.state.frame_codec import frame_shards
from millstream.state.settings import StateSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.state.base import Segment
    from millstream.testing import ManualClock

__all__ = ["FrameBench", "SideBySide"]

LEFT_SCHEMA = pl.Schema({"k": pl.Int64, "v": pl.Int64})
RIGHT_SCHEMA = pl.Schema({"v": pl.Int64, "j": pl.Int64})
HIDDEN_SCHEMA = {TIME: pl.Int64, ORIGIN_WATERMARK: pl.Int64}

Row = tuple[Any, int, int]
"""Key, time (maybe behind), value."""


def spec_of(by: Any, *, nulls_equal: bool = True) -> JoinFrameStreams:
    """Return the join of frames that is `by`."""
    how = by.how.value
    columns = JoinFrames(
        ("k",), ("j",), how, RIGHT_SCHEMA, "_r", nulls_equal=nulls_equal
    )
    return JoinFrameStreams(by, columns, LEFT_SCHEMA)


def framed(rows: list[Row], port: int, *, is_timed: bool) -> pl.DataFrame:
    """Return rows as a frame of their side."""
    schema = LEFT_SCHEMA if port == LEFT else RIGHT_SCHEMA
    frame = pl.DataFrame(
        {
            "k" if port == LEFT else "j": [key for key, _, _ in rows],
            "v": [value for _, _, value in rows],
            TIME: [int(time) for _, time, _ in rows],
            ORIGIN_WATERMARK: [
                t.watermark if isinstance(t, LateTimestamp) else None
                for _, t, _ in rows
            ],
        },
        schema_overrides={**schema, **HIDDEN_SCHEMA},
    )
    return frame.select(*schema, *(HIDDEN_SCHEMA if is_timed else ()))


class FrameBench:
    """The tasks of a join of frames."""

    def __init__(
        self,
        spec: JoinFrameStreams,
        clock: ManualClock,
        *,
        is_timed: bool = True,
    ) -> None:
        self.rows: Counter[Any] = Counter()
        self.late: Counter[int] = Counter()
        self._spec = spec
        self._clock = clock
        self._is_timed = is_timed
        self._segments: list[Segment] = []
        self._epoch = 0
        self.tasks = self._made(1)

    def _made(self, width: int) -> list[Any]:
        node = Node(0, "join", "join", self._spec, (), HERE, takes_times=self._is_timed)
        made: list[Any] = []
        for task in range(width):
            context = TaskContext(
                "job",
                task,
                Config(),
                lambda _sink, _rows: None,
                StateSettings(SHARDS),
                worker_count=width,
                clock=self._clock,
            )
            made += build_chain((node,), context)
        return made

    def give(self, rows: list[Row], port: int) -> None:
        """Let a batch come, each row to the task of its key."""
        frame = framed(rows, port, is_timed=self._is_timed)
        shards = frame_shards(frame, ["k" if port == LEFT else "j"], SHARDS)
        owners = shards * len(self.tasks) // SHARDS
        for number, task in enumerate(self.tasks):
            own: Any = frame.filter(pl.Series(owners == number))
            if own.height:
                before = own.clone()
                self._take(task, [task.process(own, port)])
                assert own.equals(before), "a batch is never changed"

    def advance(self, time: int) -> None:
        """Let event time go on."""
        for task in self.tasks:
            self._take(task, task.advance(time))

    def tick(self) -> None:
        """Let the tasks look at the clock if they want to."""
        now_ms = self._clock.wall_ms()
        for task in self.tasks:
            if not isinstance(task, TickingOperator) or task.tick_at_ms is None:
                continue
            if task.tick_at_ms <= now_ms:
                self._take(task, task.tick(now_ms))

    def finish(self) -> None:
        """End the input."""
        for task in self.tasks:
            self._take(task, task.finish())

    def cut(self) -> None:
        """Store what changed since the last cut."""
        since, self._epoch = Epoch(self._epoch), self._epoch + 1
        for number, task in enumerate(self.tasks):
            assert task.state is not None
            capture = task.state.capture(Epoch(self._epoch), since)
            self._segments += capture.segments("join", number)
            task.state.complete(Epoch(self._epoch))

    def crash(self) -> None:
        """Cut, and go on with other tasks that know only what was stored."""
        self.cut()
        self._restore(len(self.tasks))

    def resize(self, width: int) -> None:
        """Cut, and go on with so many tasks; what they store begins anew."""
        self.cut()
        self._restore(width)
        self._segments, self._epoch = [], 0

    def compact(self) -> None:
        """Make one segment of all that a task has stored."""
        by_task: dict[int, list[Segment]] = {}
        for segment in self._segments:
            by_task.setdefault(segment.task, []).append(segment)
        merging = Merging(SHARDS, is_base=True)
        self._segments = [s for own in by_task.values() for s in merged(own, merging)]

    def _restore(self, width: int) -> None:
        for task in self.tasks:
            task.close()
        self.tasks = self._made(width)
        for number, task in enumerate(self.tasks):
            assert task.state is not None
            bounds = [-(-SHARDS * n // width) for n in (number, number + 1)]
            task.state.restore(self._segments, (bounds[0], bounds[1]))

    def _take(self, task: Any, batches: Iterable[Any]) -> None:
        for batch in batches:
            if len(batch):
                columns = list(LEFT_SCHEMA)
                columns += ["v_r"] if self._spec.by.how.makes_pairs else []
                columns += list(HIDDEN_SCHEMA) if TIME in batch.columns else []
                assert batch.columns == columns
                self.rows.update(batch.rows())
        late: Any = task.late
        if len(late):
            for row in late.iter_rows(named=True):
                self.late[row["0.v" if row[LATE_SIDE] == LEFT else "1.v"]] += 1
            task.late = []


class SideBySide:
    """The same join of rows and of frames."""

    def __init__(
        self, by: Any, *, is_timed: bool = True, nulls_equal: bool = True
    ) -> None:
        self._by = by
        self._is_timed = is_timed
        self._nulls_equal = nulls_equal
        self._unauthenticated = 10**6
        self.of_rows = TaskHarness(by, is_timed=is_timed)
        spec = spec_of(by, nulls_equal=nulls_equal)
        self.of_frames = FrameBench(spec, self.of_rows.clock, is_timed=is_timed)

    def give(self, rows: list[Row], port: int) -> None:
        """Let both have a batch; a null that equals nothing is a key of its own."""
        pairs = []
        for key, time, value in rows:
            own = key
            if key is None and not self._nulls_equal:
                self._unauthenticated += 1
                own = self._unauthenticated
            pairs.append((own, (time, value) if self._is_timed else value))
        self.of_rows.give(pairs, port)
        self.of_frames.give(rows, port)

    def advance(self, time: int) -> None:
        """Let both hear a time."""
        self.of_rows.advance(time)
        self.of_frames.advance(time)

    def tick(self, milliseconds: int) -> None:
        """Let the clock of both go on."""
        self.of_rows.clock.advance(f"{milliseconds}ms")
        self.of_rows.tick()
        self.of_frames.tick()

    def check(self) -> None:
        """Compare all that came out so far."""
        expected: Counter[Any] = Counter()
        for key, made in self.of_rows.rows:
            time, value = made if self._is_timed else (None, made)
            own = None if isinstance(key, int) and key >= 10**6 else key
            values = value if self._by.how.makes_pairs else (value,)
            behind = time.watermark if isinstance(time, LateTimestamp) else None
            times = (int(time), behind) if time is not None else ()
            expected[(own, *values, *times)] += 1
        assert self.of_frames.rows == expected
        late = Counter(row.value for row in self.of_rows.late)
        assert self.of_frames.late == late
