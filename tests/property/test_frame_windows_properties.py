"""Windows on data frames against an oracle that looks at one row and one window at a time.

Method: Hypothesis draws rows of two origins with timestamps in any order, windows, how rows
are cut into batches, when watermarks come and where everything is stopped and restored from
what was stored until then, with or without compaction.  Rows are combined before they move
or not, and aggregated in slots or by Polars.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.making import node

import millstream as ms
from millstream import windows
from millstream.operators.time.frame_assign import FrameAssignTimestampsOperator
from millstream.operators.windows.frame_count import (
    FrameCountWindowOperator,
    FrameRowCountOperator,
)
from millstream.operators.windows.frame_session import FrameSessionOperator
from millstream.operators.windows.frame_time import (
    FrameCombinePanesOperator,
    FrameTimeWindowOperator,
)
from millstream.plan.frame_windows import (
    HIDDEN,
    AssignFrameTime,
    CombinePanes,
    CountFrame,
    SessionFrame,
    TimeWindowFrame,
)
from millstream.plan.windows import CountWindows
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import BEGINNING
from millstream.state.compaction import Merging, merged
from millstream.state.settings import StateSettings
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.windows import AnyWindow
    from millstream.state.base import Segment

Row = tuple[str, int, int]
"""Key, timestamp, value."""

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", ""]), st.integers(-40, 40), st.integers(-9, 9)
    ),
    max_size=14,
)
ORIGINS = st.tuples(ROWS, ROWS)
ENGINES = st.sampled_from(["polars", "native"])
SHARDS = 16
SCHEMA = {"key": pl.String, "at": pl.Int64, "x": pl.Int64}
AGGREGATES = (
    pl.len().alias("n"),
    pl.col("x").sum().alias("sum"),
    pl.col("x").max().alias("max"),
    pl.col("x").n_unique().alias("different"),
)
SLOTTED = AGGREGATES[:3]
ORDERED = (
    pl.col("x").first().alias("first"),
    pl.col("x").last(ignore_nulls=True).alias("last"),
    pl.col("x").last().alias("latest"),
    pl.col("x").implode().alias("all"),
)


def aggregated(values: list[int]) -> tuple[int, ...]:
    return len(values), sum(values), max(values), len(set(values))


def spec_of(window: AnyWindow, lateness: int, aggregates: tuple[pl.Expr, ...]) -> Any:
    """Return what the planner is told about a window."""
    flow = ms.Flow("windows")
    frame = flow.from_frame(pl.DataFrame(schema=SCHEMA))
    if not isinstance(window, CountWindows):
        frame = frame.event_time("at")
    cut = frame.group_by("key").window(window, allowed_lateness=lateness)
    cut.agg(*aggregates)
    return flow.plan.nodes[-1].spec


@dataclass
class TaskHarness:
    """Operators one behind the other, which can be stopped and restored."""

    spec: Any
    out_of_order: int
    engine: Any
    is_combined: bool
    made: list[tuple[Any, ...]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.is_combined:
            self.spec = replace(self.spec, is_combined=True)
        time = AssignFrameTime(pl.col("at"), self.out_of_order)
        self.giver = FrameAssignTimestampsOperator((node(time),), 0, ManualClock())
        combine = CombinePanes(self.spec)
        self.combiner = (
            FrameCombinePanesOperator((node(combine),), 1000, engine=self.engine)
            if self.is_combined
            else None
        )
        self.windowed = self.fresh()
        self.epochs = count(1)
        self.late = 0
        self.told = BEGINNING

    def fresh(self) -> Any:
        settings = StateSettings(SHARDS)
        nodes = (node(self.spec),)
        if isinstance(self.spec, TimeWindowFrame):
            return FrameTimeWindowOperator(nodes, settings, engine=self.engine)
        assert isinstance(self.spec, SessionFrame)
        return FrameSessionOperator(nodes, settings)

    def take(self, origin: str, rows: list[Row]) -> None:
        self.giver.origin = origin
        frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
        timed = self.giver.process(frame)
        if self.combiner is not None:
            timed = self.combiner.process(timed)
        self.push(timed)

    def push(self, frame: Any) -> None:
        if len(frame):
            self.keep(self.windowed.process(frame))

    def keep(self, frame: Any) -> None:
        if len(frame):
            assert frame["__time"].to_list() == [
                end - 1 for end in frame["window_end"].to_list()
            ]
            self.made += frame.drop(HIDDEN).rows()

    def watermark(self, origins: list[str]) -> None:
        promised = [self.giver.watermarks.get(origin, BEGINNING) for origin in origins]
        self.told = max(self.told, min(promised))
        if self.combiner is not None:
            self.push(self.combiner.flush())
        self.keep(self.windowed.flush())
        for frame in self.windowed.advance(self.told):
            self.keep(frame)

    def finish(self) -> None:
        if self.combiner is not None:
            for frame in self.combiner.finish():
                self.push(frame)
            self.late += self.combiner.late_count
        for frame in self.windowed.finish():
            self.keep(frame)
        self.late += self.windowed.late_count

    def crash(self, *, is_compacted: bool) -> None:
        """Go on from what is stored."""
        if self.combiner is not None:
            self.push(self.combiner.flush())
        self.keep(self.windowed.flush())
        self.cut()
        if is_compacted:
            merging = Merging(SHARDS, is_base=True)
            self.segments = list(merged(self.segments, merging))
        self.late += self.windowed.late_count
        self.windowed = self.fresh()
        assert self.windowed.state is not None
        self.windowed.state.restore(self.segments, (0, SHARDS))

    def cut(self) -> None:
        state, epoch = self.windowed.state, next(self.epochs)
        assert state is not None
        capture = state.capture(Epoch(epoch), Epoch(epoch - 1))
        self.segments += capture.segments("agg", 0)
        state.complete(Epoch(epoch))


def promised(rows: list[Row], out_of_order: int) -> list[tuple[Row, int]]:
    """Return every row with what its origin had promised before."""
    made, promise = [], BEGINNING
    for row in rows:
        made.append((row, promise if promise >= row[1] else BEGINNING))
        promise = max(promise, row[1] - out_of_order - 1)
    return made


def run(
    bench: TaskHarness, origins: tuple[list[Row], ...], data: st.DataObject
) -> None:
    """Give rows of origins in turns, with watermarks and crashes anywhere."""
    left = {str(number): list(rows) for number, rows in enumerate(origins)}
    names = list(left)
    steps = st.sampled_from(["rows", "rows", "watermark", "cut", "crash", "compact"])
    while any(left.values()):
        step = data.draw(steps)
        if step == "rows":
            name = data.draw(st.sampled_from([n for n, rest in left.items() if rest]))
            size = data.draw(st.integers(1, 6))
            bench.take(name, left[name][:size])
            left[name] = left[name][size:]
        elif step == "watermark":
            bench.watermark(names)
        elif step == "cut":
            bench.crash(is_compacted=False)
        else:
            bench.crash(is_compacted=step == "compact")
    bench.finish()


@given(
    ORIGINS,
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(-5, 5)),
    st.tuples(st.integers(0, 8), st.integers(0, 6)),
    st.tuples(ENGINES, st.booleans(), st.booleans()),
    st.data(),
)
def test_time_windows_have_the_rows_that_were_in_time_for_them(
    origins: tuple[list[Row], list[Row]],
    cut: tuple[int, int, int],
    bounds: tuple[int, int],
    how: tuple[Any, bool, bool],
    data: st.DataObject,
) -> None:
    """Which rows count follows from their origin alone; a window changes at most to that."""
    (size, slide, offset), (out_of_order, lateness) = cut, bounds
    engine, is_combined, is_slotted = how
    aggregates = SLOTTED if is_slotted else AGGREGATES
    window = windows.sliding(size, slide, offset=offset)
    bench = TaskHarness(
        spec_of(window, lateness, aggregates), out_of_order, engine, is_combined
    )
    run(bench, origins, data)
    expected: dict[Any, list[int]] = defaultdict(list)
    late = 0
    for (key, time, value), promise in (
        row for rows in origins for row in promised(rows, out_of_order)
    ):
        last = (time - offset) // slide
        starts = [offset + k * slide for k in range(last - size // slide, last + 1)]
        ends = [start + size for start in starts if start <= time < start + size]
        in_time = [end for end in ends if end - 1 + lateness > promise]
        late += bool(ends) and not in_time
        for end in in_time:
            expected[key, end - size, end].append(value)
    wanted = {
        (*place, *aggregated(values)[: len(aggregates)])
        for place, values in expected.items()
    }
    last_told = {row[:3]: row for row in bench.made}
    assert set(last_told.values()) == wanted
    assert bench.late == late
    if not lateness:
        assert len(bench.made) == len(wanted)


def test_row_that_is_too_late_for_every_window_told_changes_none_of_them() -> None:
    """Its other window is not over yet, though it belongs to one that was told."""
    spec = spec_of(windows.sliding(2, 1), 1, AGGREGATES)
    bench = TaskHarness(spec, out_of_order=0, engine="polars", is_combined=False)
    bench.take("1", [("a", 4, 0)])
    bench.take("0", [("a", 5, 0)])
    bench.watermark(["0", "1"])
    bench.take("0", [("a", 3, 0)])
    bench.finish()

    assert sorted(row[1:3] for row in bench.made) == [(3, 5), (4, 6), (5, 7)]


@given(ORIGINS, st.integers(1, 12), st.integers(0, 8), st.data())
def test_sessions_are_rows_less_than_the_gap_apart(
    origins: tuple[list[Row], list[Row]],
    gap: int,
    out_of_order: int,
    data: st.DataObject,
) -> None:
    """A row behind its promise reaches only over what was still to come then."""
    bench = TaskHarness(
        spec_of(windows.session(gap), 0, AGGREGATES),
        out_of_order,
        "polars",
        is_combined=False,
    )
    run(bench, origins, data)
    reaching: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for (key, time, value), promise in (
        row for rows in origins for row in promised(rows, out_of_order)
    ):
        start = max(time, promise + 1)
        if start < time + gap:
            reaching[key].append((start, time + gap, value))
    wanted = []
    for key, rows in reaching.items():
        sessions: list[list[Any]] = []
        for start, end, value in sorted(rows):
            if sessions and start < sessions[-1][1]:
                sessions[-1][1] = max(end, sessions[-1][1])
                sessions[-1][2].append(value)
            else:
                sessions.append([start, end, [value]])
        wanted += [(key, s, e, *aggregated(values)) for s, e, values in sessions]
    assert sorted(bench.made) == sorted(wanted)


@given(ROWS, st.integers(1, 12), st.sampled_from(["rows", "parts"]), st.data())
def test_first_and_last_are_so_in_time(
    rows: list[Row], size: int, moved: str, data: st.DataObject
) -> None:
    """Rows that came later may be earlier; of equal timestamps the first to come is."""
    spec = spec_of(windows.sliding(size, 3), 0, ORDERED)
    bench = TaskHarness(spec, 100, "polars", is_combined=moved == "parts")
    run(bench, (rows,), data)
    expected: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, time, value in rows:
        for start in range(time // 3 * 3, time - size, -3):
            expected[key, start, start + size].append((time, value))
    wanted = []
    for place, inside in expected.items():
        values = [value for _, value in sorted(inside, key=lambda pair: pair[0])]
        wanted.append((*place, values[0], values[-1], values[-1], values))
    assert sorted(bench.made) == sorted(wanted)


@given(
    ROWS,
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.booleans()),
    st.tuples(ENGINES, st.booleans()),
    st.data(),
)
def test_count_windows_have_so_many_rows_of_a_key_in_order(
    rows: list[Row],
    cut: tuple[int, int, bool],
    how: tuple[Any, bool],
    data: st.DataObject,
) -> None:
    """Batches may end anywhere, and a crash changes nothing."""
    (size, slide, drops_incomplete), (engine, is_counted) = cut, how
    window = windows.count(size, slide, exact=drops_incomplete)
    counted = (pl.len().alias("n"),)
    spec = spec_of(window, 0, counted if is_counted else AGGREGATES)
    assert isinstance(spec, CountFrame)
    assert spec.is_counted == is_counted
    kind: Callable[..., Any] = (
        FrameRowCountOperator if is_counted else FrameCountWindowOperator
    )
    operator = kind((node(spec),), StateSettings(SHARDS), engine=engine)
    segments: list[Segment] = []
    made, left, epochs = [], list(rows), count(1)
    while left:
        if data.draw(st.sampled_from(["rows", "rows", "crash"])) == "rows":
            number = data.draw(st.integers(1, 6))
            frame: Any = pl.DataFrame(left[:number], schema=SCHEMA, orient="row")
            left = left[number:]
            made += _rows(operator.process(frame))
            continue
        epoch = next(epochs)
        assert operator.state is not None
        capture = operator.state.capture(Epoch(epoch), Epoch(epoch - 1))
        lost: Any = pl.DataFrame(rows[:3], schema=SCHEMA, orient="row")
        operator.process(lost)
        segments += capture.segments("agg", 0)
        operator = kind((node(spec),), StateSettings(SHARDS), engine=engine)
        assert operator.state is not None
        operator.state.restore(segments, (0, SHARDS))
    made += [row for frame in operator.finish() for row in _rows(frame)]
    values: dict[str, list[int]] = defaultdict(list)
    for key, _, value in rows:
        values[key].append(value)
    wanted = []
    for key, own in values.items():
        for start in range(0, len(own), slide):
            inside = own[start : start + size]
            if len(inside) == size or not drops_incomplete:
                found = aggregated(inside)
                wanted.append((key, *(found[:1] if is_counted else found)))
    assert sorted(made) == sorted(wanted)


def _rows(frame: Any) -> list[Any]:
    return frame.rows() if len(frame) else []


@examples(0.3)
@given(ROWS, st.sampled_from(["sliding", "session", "count"]), st.integers(1, 3))
def test_frames_and_rows_have_the_same_windows(
    rows: list[Row], kind: str, workers: int
) -> None:
    """The same flow in both words, late rows included, at any number of workers."""
    made: dict[str, AnyWindow] = {
        "sliding": windows.sliding(7, 3),
        "session": windows.session(5),
        "count": windows.count(3, 2),
    }
    window = made[kind]
    flow = ms.Flow("both")
    stream = flow.from_iterable(rows)
    if kind == "count":
        frame = stream.to_frame(SCHEMA)
        counts = frame.group_by("key").window(window).agg(n=pl.len()).collect()
        keyed = stream.key_by(lambda row: row[0]).window(window).count()
        found = keyed.unkey().collect()
        flow.run(on="local", workers=workers)
        assert sorted(counts.result().rows()) == sorted(found.result())
        return
    timed_rows = stream.event_time(lambda row: row[1], out_of_order=4)
    timed = timed_rows.to_frame(SCHEMA).filter(pl.col("x") < 5)
    cut = timed.select("key", pl.all().exclude("key")).group_by("key").window(window)
    sums = cut.agg(total=pl.col("x").sum())
    in_time, late = sums.collect(), sums.late().collect()
    keyed_rows = timed_rows.filter(lambda row: row[2] < 5).key_by(lambda row: row[0])
    values = keyed_rows.map(lambda row: row[2]).window(window).with_window().sum()
    expected, too_late = values.unkey().collect(), values.late().collect()
    flow.run(on="local", workers=workers)
    assert sorted(in_time.result().rows()) == sorted(
        (key, start, end, total) for key, ((start, end), total) in expected.result()
    )
    assert sorted(late.result().rows()) == sorted(
        (row.key, row.timestamp, row.value) for row in too_late.result()
    )


@given(ROWS, st.sampled_from(["sliding", "session"]), st.integers(1, SHARDS - 1))
def test_state_of_windows_goes_to_more_tasks_and_back_to_one(
    rows: list[Row], kind: str, middle: int
) -> None:
    """Stored by key, it is the same at any number of tasks; also while time differs."""
    window = windows.sliding(12, 5) if kind == "sliding" else windows.session(4)
    alone, bench, left, right, again = (
        TaskHarness(spec_of(window, 0, SLOTTED), 20, "polars", is_combined=False)
        for _ in range(5)
    )
    for each in (alone, bench):
        if rows:
            each.take("0", rows)
            each.watermark(["0"])
    alone.finish()
    bench.cut()
    halves = ((left, (0, middle)), (right, (middle, SHARDS)))
    for task, (half, shards) in enumerate(halves):
        assert half.windowed.state is not None
        half.windowed.state.restore(bench.segments, shards)
        half.cut()
        again.segments += [replace(segment, task=task) for segment in half.segments]
    for frame in right.windowed.advance(30):
        right.keep(frame)
    right.cut()
    told = [replace(segment, task=1) for segment in right.segments]
    assert again.windowed.state is not None
    again.windowed.state.restore(
        [s for s in again.segments if s.task == 0] + told, (0, SHARDS)
    )
    again.finish()
    made = [*bench.made, *right.made, *again.made]
    assert sorted(made) == sorted(alone.made)
