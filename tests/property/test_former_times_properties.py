"""A task that takes over from former ones goes on as if all of them had come as far.

Method: Hypothesis draws what happens to the tasks of a window or a join, each of which
hears of time on its own.  They are cut, and go on in two ways: as they are, when all have
heard of the latest time; and restored, as another number of tasks.  Both say the same, and
the same rows are late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.frame_joining import framed, spec_of
from tests.support.making import HERE
from tests.support.windowing import MEMORY, SHARDS

import millstream as ms
from millstream import windows
from millstream.config import Config
from millstream.operators.base import (
    OneInputOperator,
    Operator,
    TickingOperator,
    TimedOperator,
    TwoInputOperator,
)
from millstream.operators.build import TaskContext, build_chain
from millstream.plan import aggregate as aggregates
from millstream.plan.frame_windows import ORIGIN_WATERMARK, TIME
from millstream.plan.joins import (
    LEFT,
    Direction,
    How,
    JoinAsof,
    JoinInterval,
    JoinWindow,
)
from millstream.plan.logical import Node
from millstream.plan.windows import Windowed
from millstream.protocol.former_times import earliest_time, latest_time, take_over
from millstream.protocol.ids import Epoch
from millstream.protocol.routing import shard_range
from millstream.protocol.watermark import BEGINNING
from millstream.state.base import ALL_SHARDS, SegmentKind
from millstream.state.frame_codec import frame_shards
from millstream.state.keyhash import shard_of
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.plan.spec import Spec
    from millstream.plan.windows import AnyWindow
    from millstream.state.base import Segment

KEYS = range(6)
SCHEMA = {"key": pl.Int64, "x": pl.Int64, "at": pl.Int64}
KEYLESS = (SegmentKind.TASK, SegmentKind.SHARED)

Row = tuple[int, int, int, int]
"""Key, time, value and side."""


@dataclass
class OfRows:
    """A window or a join of rows."""

    spec: Spec
    is_timed: bool

    def node(self) -> Node:
        return Node(
            0,
            "timed",
            "timed",
            self.spec,
            (),
            HERE,
            takes_pairs=True,
            takes_times=self.is_timed,
            makes_times=self.is_timed,
        )

    def shard(self, row: Row) -> int:
        return shard_of(row[0], SHARDS)

    def batch(self, row: Row) -> Any:
        key, time, value, _ = row
        return [(key, (time, value) if self.is_timed else value)]


@dataclass
class JoinOfFrames:
    """A join of frames."""

    spec: Spec
    is_timed: bool

    def node(self) -> Node:
        spec = spec_of(self.spec)
        return Node(0, "timed", "timed", spec, (), HERE, takes_times=self.is_timed)

    def shard(self, row: Row) -> int:
        name = "k" if row[3] == LEFT else "j"
        return int(frame_shards(self.batch(row), [name], SHARDS)[0])

    def batch(self, row: Row) -> Any:
        return framed([row[:3]], row[3], is_timed=self.is_timed)


@dataclass
class WindowOfFrames:
    """A window of frames."""

    window: AnyWindow
    lateness: int
    is_timed: bool

    def node(self) -> Node:
        flow = ms.Flow("frame")
        frame = flow.from_frame(pl.DataFrame(schema=SCHEMA))
        if self.is_timed:
            frame = frame.event_time("at")
        late = {"allowed_lateness": self.lateness} if self.lateness else {}
        cut = frame.group_by("key").window(self.window, **late)
        cut.agg(pl.col("x").sum(), n=pl.len())
        return flow.plan.nodes[-1]

    def shard(self, row: Row) -> int:
        return int(frame_shards(self.batch(row), ["key"], SHARDS)[0])

    def batch(self, row: Row) -> Any:
        key, time, value, _ = row
        frame = pl.DataFrame([(key, value, time)], schema=SCHEMA, orient="row")
        if not self.is_timed:
            return frame
        nothing = pl.lit(None, pl.Int64).alias(ORIGIN_WATERMARK)
        return frame.with_columns(pl.col("at").alias(TIME), nothing)


Timed = OfRows | JoinOfFrames | WindowOfFrames


@dataclass
class Tasks:
    """So many tasks of a window or a join."""

    kind: Timed
    clock: ManualClock
    width: int
    made: Counter[Any] = field(default_factory=Counter)
    late: Counter[Any] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        node = self.kind.node()
        contexts = [
            TaskContext(
                "job",
                index,
                Config(),
                lambda _sink, _rows: None,
                MEMORY,
                worker_count=self.width,
                clock=self.clock,
            )
            for index in range(self.width)
        ]
        self.tasks = [build_chain([node], context)[0] for context in contexts]

    def give(self, row: Row) -> None:
        shard = self.kind.shard(row)
        for index, task in enumerate(self.tasks):
            first, end = shard_range(SHARDS, self.width, index)
            if first <= shard < end:
                self._keep(task, [processed(task, self.kind.batch(row), row[3])])

    def hear(self, time: int, index: int | None = None) -> None:
        """Let tasks hear of time, as a watermark or by the clock."""
        for task in self.tasks if index is None else [self.tasks[index % self.width]]:
            self._keep(task, [task.flush()])
            if isinstance(task, TimedOperator):
                self._keep(task, task.advance(time))
            elif isinstance(task, TickingOperator) and task.tick_at_ms is not None:
                self._keep(task, task.tick(time) if task.tick_at_ms <= time else ())

    def cut(self) -> list[Segment]:
        segments: list[Segment] = []
        for index, task in enumerate(self.tasks):
            assert task.state is not None
            capture = task.state.capture(Epoch(1), Epoch(0))
            segments += capture.segments("timed", index)
        return segments

    def restore(self, segments: list[Segment]) -> None:
        keyless = [segment for segment in segments if segment.kind in KEYLESS]
        keyed = [segment for segment in segments if segment.kind not in KEYLESS]
        for index, task in enumerate(self.tasks):
            assert task.state is not None
            if keyless:
                task.state.restore(keyless, ALL_SHARDS)
            task.state.restore(keyed, shard_range(SHARDS, self.width, index))

    def finish(self) -> None:
        for task in self.tasks:
            self._keep(task, task.finish())

    def _keep(self, task: Operator, batches: Iterable[Any]) -> None:
        self.made.update(repr(row) for batch in batches for row in rows_of(batch))
        if isinstance(task, TimedOperator):
            self.late.update(map(repr, rows_of(task.late)))
            task.late = []


def processed(task: Operator, batch: Any, port: int) -> Any:
    if isinstance(task, TwoInputOperator):
        return task.process(batch, port)
    assert isinstance(task, OneInputOperator)
    return task.process(batch)


def rows_of(batch: Any) -> list[Any]:
    return batch.rows() if isinstance(batch, pl.DataFrame) else batch


SUM = aggregates.builtin("sum")
TIMES = ["event", "processing"]
WINDOWS: dict[str, Callable[[Any], AnyWindow]] = {
    "tumbling": lambda time: windows.tumbling(10, time=time),
    "sliding": lambda time: windows.sliding(12, 5, time=time),
    "gaps": lambda time: windows.sliding(3, 7, time=time),
    "session": lambda time: windows.session(6, time=time),
}
BEFORE = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.integers(0, 60),
        st.integers(0, 9),
        st.integers(0, 1),
    )
    | st.tuples(st.integers(0, 2), st.integers(1, 25)),
    max_size=20,
)
AFTER = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.integers(0, 100),
        st.integers(0, 9),
        st.integers(0, 1),
    ),
    max_size=8,
)


def go_on_in_two_ways(
    kind: Timed,
    before: list[Any],
    after: list[Row],
    widths: tuple[int, int],
    *,
    hears_later: bool,
) -> tuple[Tasks, Tasks]:
    """Return former tasks and restored ones, after the same has happened to both."""
    clock, reached = ManualClock(), [0, 0, 0]
    former = Tasks(kind, clock, widths[0])
    is_join = not isinstance(kind, WindowOfFrames) and not isinstance(
        kind.spec, Windowed
    )
    for step in before:
        if len(step) == 2:
            task, more = step[0] % widths[0], step[1]
            clock.advance(f"{more}ms" if not kind.is_timed else "0ms")
            reached[task] = reached[task] + more if kind.is_timed else clock.wall_ms()
            former.hear(reached[task], task)
        else:
            former.give((*step[:3], step[3] if is_join else LEFT))
    segments = former.cut()
    former.made.clear()
    former.late.clear()
    restored = Tasks(kind, clock, widths[1])
    restored.restore(segments)
    last = max(reached) if kind.is_timed else clock.wall_ms()
    for tasks in (former, restored):
        # Who takes over knows of the time that somebody had heard of.
        if last and (tasks is former or not hears_later):
            tasks.hear(last)
        for key, time, value, side in after:
            tasks.give((key, time, value, side if is_join else LEFT))
        tasks.finish()
    return former, restored


def check(kind: Timed, drawn: Any, *, hears_later: bool = False) -> None:
    former, restored = go_on_in_two_ways(kind, *drawn, hears_later=hears_later)
    assert restored.made == former.made
    assert restored.late == former.late


DRAWN = st.tuples(BEFORE, AFTER, st.tuples(st.integers(1, 3), st.integers(1, 3)))


@pytest.mark.parametrize("lateness", [0, 8])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("window", WINDOWS)
@examples(0.4)
@given(drawn=DRAWN, hears_later=st.booleans())
def test_windows_of_rows_go_on_at_another_width(
    *, window: str, time: str, lateness: int, drawn: Any, hears_later: bool
) -> None:
    """Every window of every key once, though some tasks had told it and others not."""
    if lateness and time == "processing":
        return
    spec = Windowed(WINDOWS[window](time), SUM, lateness_ms=lateness, shows_window=True)
    # A late row may be in a result the first time, and not only when it is told again.
    hears_later = hears_later and not lateness
    check(OfRows(spec, is_timed=time == "event"), drawn, hears_later=hears_later)


@pytest.mark.parametrize("lateness", [0, 8])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("window", WINDOWS)
@examples(0.2)
@given(drawn=DRAWN, hears_later=st.booleans())
def test_windows_of_frames_go_on_at_another_width(
    *, window: str, time: str, lateness: int, drawn: Any, hears_later: bool
) -> None:
    """The same of frames."""
    if lateness and time == "processing":
        return
    hears_later = hears_later and not lateness
    kind = WindowOfFrames(WINDOWS[window](time), lateness, time == "event")
    check(kind, drawn, hears_later=hears_later)


JOINS: dict[str, Callable[[How], Any]] = {
    "window": lambda how: JoinWindow(how, 12, 5),
    "window by the clock": lambda how: JoinWindow(how, 12, 5, is_event_time=False),
    "interval": lambda how: JoinInterval(how, -4, 7),
    "asof": lambda how: JoinAsof(how, Direction.NEAREST, 9),
}


@pytest.mark.parametrize("how", [How.INNER, How.LEFT, How.FULL, How.ANTI])
@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("kind", [OfRows, JoinOfFrames])
@examples(0.2)
@given(drawn=DRAWN, hears_later=st.booleans())
def test_joins_go_on_at_another_width(
    *,
    kind: type[OfRows | JoinOfFrames],
    join: str,
    how: How,
    drawn: Any,
    hears_later: bool,
) -> None:
    """Pairs, and rows that stay alone, of rows and of frames."""
    if join == "asof" and how in (How.FULL, How.ANTI):
        return
    made = kind(JOINS[join](how), "clock" not in join)
    check(made, drawn, hears_later=hears_later)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers())))
def test_former_tasks_are_taken_over_in_the_order_of_time(
    former: list[tuple[int, int]],
) -> None:
    """Each once, at its own time, which never goes back."""
    now: list[int] = []
    taken: list[tuple[int, int]] = []
    take_over(
        former, now.append, lambda parts: taken.extend((now[-1], p) for p in parts)
    )

    assert now == sorted({time for time, _ in former})
    assert sorted(taken) == sorted(former)
    times = [time for time, _ in former]
    assert latest_time(times) == (now[-1] if now else BEGINNING)
    assert earliest_time(times) == (now[0] if now else BEGINNING)
