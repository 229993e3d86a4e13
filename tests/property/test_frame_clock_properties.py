"""Windows by the clock, triggers and watermarks of users' own: frames say what rows say.

Method: Hypothesis draws what happens to an operator on rows and to one on frames: batches,
time that passes, watermarks, and crashes, after which both go on from what they had stored.
Limits of the operator on frames are drawn too, so that it works in many small steps.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.making import node
from tests.support.windowing import MEMORY, SHARDS, window_operator_of

import millstream as ms
from millstream import windows
from millstream.config import Config
from millstream.operators.build import TaskContext, build_chain
from millstream.operators.time.assign import AssignTimestampsOperator
from millstream.operators.time.frame_assign import FrameAssignTimestampsOperator
from millstream.operators.windows import frame_pieces
from millstream.operators.windows import frame_session as frame_sessions
from millstream.operators.windows import frame_triggered as frame_triggers
from millstream.plan.frame_windows import ORIGIN_WATERMARK, TIME, AssignFrameTime
from millstream.plan.time import AssignTime, LateTimestamp
from millstream.plan.windows import GlobalWindow, Windowed
from millstream.protocol.ids import Epoch
from millstream.state.compaction import Merging, merged
from millstream.testing import ManualClock
from millstream.windows import Action, Trigger, TriggerContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.plan.windows import AnyWindow
    from millstream.state.base import Segment

SCHEMA = {"key": pl.String, "x": pl.Int64}
Row = tuple[str | None, int]
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", None]), st.integers(0, 40)), max_size=6
)
LOST: list[Row] = [("a", 7), ("b", 35), (None, 20), ("new", 4)]
STEPS = st.lists(
    st.tuples(st.just("rows"), ROWS)
    | st.tuples(st.just("wait"), st.integers(1, 25))
    | st.tuples(st.sampled_from(["crash", "merge"]), st.just(0)),
    max_size=14,
)


@contextmanager
def small(limit: int) -> Iterator[None]:
    """Let the operators on frames work in small steps."""
    with (
        patch.object(frame_triggers, "PIECES_MAX", 2 * limit),
        patch.object(frame_triggers, "RESULTS_MAX", limit),
        patch.object(frame_triggers, "SLOTS_MAX", limit),
        patch.object(frame_pieces, "_ROWS_MIN", 4 * limit),
        patch.object(frame_pieces, "RUNS_MAX", limit),
        patch.object(frame_sessions, "_FRESH_ROWS", limit),
    ):
        yield


class TaskHarness:
    """An operator that is told what happens, and can be stopped and restored.

    With deltas it goes on from all that was ever stored, otherwise from the last time.
    """

    def __init__(self, make: Callable[[ManualClock], Any], *, has_deltas: bool) -> None:
        self.clock = ManualClock()
        self._has_deltas = has_deltas
        self._make = make
        self._epochs = count(1)
        self._segments: list[Segment] = []
        self.operator = make(self.clock)
        self.made: list[Any] = []

    def take(self, rows: Any) -> None:
        self.keep(self.operator.process(rows))

    def wait(self, ms: int) -> None:
        """Let time pass, and call the operator as its task would."""
        for _ in range(ms):
            self.clock.advance("1ms")
            at = self.operator.tick_at_ms
            if at is not None and at <= self.clock.wall_ms():
                for rows in self.operator.tick(self.clock.wall_ms()):
                    self.keep(rows)

    def advance(self, time: int) -> None:
        for rows in self.operator.advance(time):
            self.keep(rows)

    def crash(self, lost: Any, *, is_merged: bool) -> None:
        """Store what there is, and go on from it elsewhere; what follows it is lost."""
        self.keep(self.operator.flush())
        assert self.operator.state is not None
        epoch = next(self._epochs)
        since = epoch - 1 if self._has_deltas else 0
        capture = self.operator.state.capture(Epoch(epoch), Epoch(since))
        self.operator.process(lost)
        before = self._segments if self._has_deltas else []
        self._segments = [*before, *capture.segments("window", 0)]
        if is_merged and self._has_deltas:
            self._segments = list(merged(self._segments, Merging(SHARDS, is_base=True)))
        self.operator = self._make(self.clock)
        assert self.operator.state is not None
        self.operator.state.restore(self._segments, (0, SHARDS))

    def finish(self) -> list[Any]:
        for rows in self.operator.finish():
            self.keep(rows)
        return self.made

    def keep(self, rows: Any) -> None:
        if len(rows):
            self.made += rows.rows() if isinstance(rows, pl.DataFrame) else rows


def frame_bench(window: AnyWindow, *, is_timed: bool = False) -> TaskHarness:
    """Return the operator that the planner puts in for a window of a frame."""
    flow = ms.Flow("frame")
    schema = {**SCHEMA, "at": pl.Int64} if is_timed else SCHEMA
    frame = flow.from_frame(pl.DataFrame(schema=schema))
    if is_timed:
        frame = frame.event_time("at")
    cut = frame.group_by("key").window(window)
    cut.agg(pl.col("x").implode(), n=pl.len(), different=pl.col("x").n_unique())
    planned = flow.plan.nodes[-1]

    def make(clock: ManualClock) -> Any:
        emit = lambda _sink, _rows: None  # noqa: E731 - nobody listens
        context = TaskContext("job", 0, Config(), emit, MEMORY, clock=clock)
        (operator,) = build_chain([planned], context)
        return operator

    return TaskHarness(make, has_deltas=True)


def row_bench(window: AnyWindow, *, is_timed: bool = False) -> TaskHarness:
    spec = Windowed(window, None, shows_window=not isinstance(window, GlobalWindow))
    return TaskHarness(
        lambda clock: window_operator_of(spec, MEMORY, clock, is_timed=is_timed),
        has_deltas=False,
    )


def frame_of(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def happen(bench: TaskHarness, steps: list[tuple[str, Any]], make: Any) -> list[Any]:
    for what, value in steps:
        if what == "rows" and value:
            bench.take(make(value))
        elif what == "wait":
            bench.wait(value)
        elif what in ("crash", "merge"):
            bench.crash(make(LOST), is_merged=what == "merge")
    return bench.finish()


WINDOWS = st.one_of(
    st.builds(
        windows.sliding,
        st.integers(1, 30),
        st.integers(1, 30),
        offset=st.integers(0, 9),
        time=st.just("processing"),
    ),
    st.builds(windows.session, st.integers(1, 20), time=st.just("processing")),
)


@example(
    windows.session(18, time="processing"),
    [("rows", [("a", 0)]), ("wait", 17), ("rows", [("a", 0)]), ("wait", 1)],
    1,
)
@given(WINDOWS, STEPS, st.integers(1, 8))
def test_windows_by_the_clock_are_those_of_rows(
    window: AnyWindow, steps: list[tuple[str, Any]], limit: int
) -> None:
    """Tumbling, sliding with overlaps and gaps, and sessions, also after crashes."""
    with small(limit):
        made = happen(frame_bench(window), steps, frame_of)
    rows = happen(row_bench(window), steps, lambda rows: [(k, x) for k, x in rows])
    found = [(key, start, end, values) for key, start, end, values, *_ in made]
    expected = [(key, *bounds, values) for key, (bounds, values) in rows]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert all(
        n == len(values) and different == len(set(values))
        for *_, values, n, different in made
    )


class Whims(Trigger):
    """Wants what the values say: results, forgetting, calls, and memories."""

    def on_row(self, value: Any, context: TriggerContext) -> Action:
        x = value["x"]
        if x % 5 == 0:
            context.call_at(context.now + x % 7)
        if x % 3 == 0:
            context.state["seen"] = context.state.get("seen", 0) + 1
        elif x % 11 == 0:
            context.state.clear()
        return Action(x // 2 % 4) if x % 2 else Action.CONTINUE

    def on_time(self, time: int, context: TriggerContext) -> Action:
        if time % 3 == 0 and context.count:
            context.call_at(time + 1 + context.count)
        return Action(time % 4)

    def on_end(self, context: TriggerContext) -> Action:
        is_known = context.key is not None and context.state.get("seen", 0) != 1
        return Action.FIRE if is_known else Action.CONTINUE


def by_key(made: list[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Return the results of every key, in order."""
    found: dict[Any, list[Any]] = {}
    for key, values in made:
        found.setdefault(key, []).append(values)
    return found


def dicts(rows: list[Row]) -> list[Any]:
    return [(key, {"key": key, "x": x}) for key, x in rows]


@given(STEPS, st.integers(1, 8))
def test_triggers_by_the_clock_make_of_frames_what_they_make_of_rows(
    steps: list[tuple[str, Any]], limit: int
) -> None:
    """The same trigger, the same results of every key in the same order."""
    window = windows.global_window(Whims())
    with small(limit):
        made = happen(frame_bench(window), steps, frame_of)
    rows = happen(row_bench(window), steps, dicts)
    expected = [(key, [row["x"] for row in values]) for key, values in rows]
    assert by_key([(key, values) for key, values, *_ in made]) == by_key(expected)
    assert all(n == len(values) for _, values, n, _ in made)


def timed_frame(timed: list[tuple[str | None, int, int]]) -> pl.DataFrame:
    schema = {**SCHEMA, "at": pl.Int64}
    times = pl.col("at").alias(TIME), pl.lit(None, pl.Int64).alias(ORIGIN_WATERMARK)
    return pl.DataFrame(timed, schema=schema, orient="row").with_columns(times)


def timed_pairs(timed: list[tuple[str | None, int, int]]) -> list[Any]:
    return [(k, (t, {"key": k, "x": x, "at": t})) for k, x, t in timed]


@given(STEPS, st.integers(1, 8))
def test_triggers_by_timestamps_make_of_frames_what_they_make_of_rows(
    steps: list[tuple[str, Any]], limit: int
) -> None:
    """Rows come in order; time goes on by watermarks, and in steps."""
    window = windows.global_window(Whims())
    with small(limit):
        frames, rows = (
            frame_bench(window, is_timed=True),
            row_bench(window, is_timed=True),
        )
        time = 0
        for what, value in steps:
            some = value if what == "rows" else LOST
            timed = [(key, x, time + i // 2) for i, (key, x) in enumerate(some)]
            frame, pairs = timed_frame(timed), timed_pairs(timed)
            if what == "rows" and value:
                frames.take(frame)
                rows.take(pairs)
                time = timed[-1][2]
            elif what == "wait":
                time += value
                frames.advance(time - 1)
                rows.advance(time - 1)
            elif what != "rows":
                frames.crash(frame, is_merged=what == "merge")
                rows.crash(pairs, is_merged=what == "merge")
        expected = [(k, [r["x"] for r in values]) for k, (_, values) in rows.finish()]
        made = frames.finish()
    assert by_key([(key, values) for key, values, *_ in made]) == by_key(expected)


def marks() -> Callable[[Any, int], int | None]:
    """Promise by rows that are marks; the time of the third mark and so on is whole."""
    seen = []

    def promise(row: Any, time: int) -> int | None:
        seen.append(time)
        return row["mark"] if row["mark"] is not None and len(seen) % 4 else None

    return promise


@examples(0.5)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["0", "1"]),
            st.lists(
                st.tuples(st.integers(-20, 60), st.none() | st.integers(-30, 50)),
                min_size=1,
                max_size=6,
            ),
        ),
        max_size=8,
    ),
    st.sampled_from(["function", "expression"]),
)
def test_promises_of_users_are_those_of_rows(
    batches: list[tuple[str, list[tuple[int, int | None]]]], kind: str
) -> None:
    """Row by row and split by split, whether a function or an expression makes them."""
    is_function = kind == "function"
    promises: Any = marks if is_function else lambda: lambda row, _: row["mark"]
    by_frame = marks if is_function else pl.col("mark")
    clock = ManualClock()
    rows = AssignTimestampsOperator(
        (node(AssignTime(lambda row: row["at"], 0, None, 50, promises)),), 0, clock
    )
    spec = AssignFrameTime(pl.col("at"), 0, None, 50, watermark=by_frame)
    frames = FrameAssignTimestampsOperator((node(spec),), 0, clock)
    for origin, batch in batches:
        frame = pl.DataFrame(
            batch, schema={"at": pl.Int64, "mark": pl.Int64}, orient="row"
        )
        rows.origin = frames.origin = origin
        timed = rows.process(frame.to_dicts())
        found = frames.process(frame)
        behind = [
            t.watermark if isinstance(t, LateTimestamp) else None for t, _ in timed
        ]
        assert found[ORIGIN_WATERMARK].to_list() == behind
        assert found[TIME].to_list() == [int(time) for time, _ in timed]
    assert frames.watermarks == rows.watermarks
    assert frames.ahead_count == rows.ahead_count
