"""Event time and windows on frames: what verbs keep, bounds, late rows, and refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import polars.selectors as cs
import pytest
from tests.support.making import node

import millstream as ms
from millstream import windows
from millstream.operators.time.frame_assign import FrameAssignTimestampsOperator
from millstream.operators.windows.frame_panes import RUNS_MAX, PaneRuns
from millstream.plan.frame_windows import ORIGIN_WATERMARK, TIME, AssignFrameTime
from millstream.plan.windows import Panes
from millstream.testing import ManualClock, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = pl.DataFrame(
    {
        "key": ["a", "b", "a", "a"],
        "at": [1, 12, 5, 25],
        "x": [1, None, 3, 4],
        "text": ["to be", "or", "not", "to be"],
    }
)


def timed(flow: ms.Flow, events: pl.DataFrame = EVENTS) -> ms.Frame:
    return flow.from_frame(events).event_time("at", out_of_order=30)


def rows_of(make: Callable[[ms.Frame], ms.Frame]) -> list[tuple[Any, ...]]:
    """Return the rows of a frame that is made of events with time, in order."""
    flow = ms.Flow("rows")
    result = make(timed(flow)).collect()
    flow.run(on="local", workers=2)
    return sorted(result.result().rows(), key=repr)


VERBS: dict[str, Callable[[ms.Frame], ms.Frame]] = {
    "select": lambda f: f.select("key", "x"),
    "select all": lambda f: f.select(pl.all()),
    "select by type": lambda f: f.select("key", cs.integer() * 2),
    "with_columns": lambda f: f.with_columns(cs.integer() + 1, y=pl.col("x") + 1),
    "filter": lambda f: f.filter(pl.all_horizontal(cs.integer().is_not_null())),
    "drop": lambda f: f.drop("at"),
    "rename": lambda f: f.rename({"x": "y"}),
    "cast": lambda f: f.cast({cs.integer(): pl.Float64}),
    "fill_null": lambda f: f.fill_null(0),
    "fill_null with an expression": lambda f: f.drop("key", "text").fill_null(
        pl.col("at")
    ),
    "drop_nulls": lambda f: f.drop_nulls(),
    "explode": lambda f: f.with_columns(pl.col("text").str.split(" ")).explode("text"),
    "unpivot": lambda f: f.unpivot(["at", "x"], index="key"),
    "unpivot all": lambda f: f.select("at", "x").unpivot(),
    "map_batches": lambda f: f.map_batches(
        lambda batch: batch.with_columns(pl.col("x"))
    ),
    "tokens": lambda f: f.tokens("text"),
    "join": lambda f: f.join(pl.DataFrame({"key": ["a"], "name": ["ada"]}), "key"),
    "union": lambda f: f.select("key", "x").union(f.select("key", "x")),
    "to_rows": lambda f: f.select("x").to_rows().to_frame({"x": pl.Int64}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_does_the_same_with_event_time_and_keeps_it(verb: str) -> None:
    """Users do not see the hidden columns, and no expression of theirs touches them."""
    make = VERBS[verb]
    flow = ms.Flow("plain")
    plain = make(flow.from_frame(EVENTS))
    expected = plain.collect()
    flow.run(on="local")
    assert rows_of(make) == sorted(expected.result().rows(), key=repr)
    times = rows_of(lambda f: make(f).window(windows.tumbling(10)).agg(n=pl.len()))
    assert sum(n for *_, n in times) == expected.result().height
    assert {start for start, *_ in times} <= {0, 10, 20}


def test_bounds_are_times_where_timestamps_are() -> None:
    """What is below a millisecond is cut off downwards, also before 1970."""
    start = datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)
    events = pl.DataFrame(
        {"at": [start, start + timedelta(milliseconds=1)]},
        schema={"at": pl.Datetime("us", "UTC")},
    )
    flow = ms.Flow("times")
    cut = timed(flow, events).window(windows.tumbling(1))
    result = cut.agg(n=pl.len())
    assert result.schema["window_start"] == pl.Datetime("ms", "UTC")
    found = result.collect()
    flow.run(on="local")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    millisecond = timedelta(milliseconds=1)
    assert sorted(found.result().rows()) == [
        (epoch - millisecond, epoch, 1),
        (epoch, epoch + millisecond, 1),
    ]


def test_windows_of_windows_have_the_time_of_their_end() -> None:
    """The timestamp of a result is the last millisecond of its window."""
    sums = rows_of(
        lambda f: (
            f.group_by("key")
            .window(windows.tumbling(10))
            .agg(n=pl.len())
            .window(windows.tumbling(20))
            .agg(n=pl.col("n").sum())
        )
    )
    assert sums == [(0, 20, 3), (20, 40, 1)]


def test_keys_may_be_computed_and_windows_may_be_filtered() -> None:
    """A computed key has its name in the result, and late rows have no more columns."""
    flow = ms.Flow("computed")
    events = flow.from_frame(EVENTS).event_time("at")
    letters = events.group_by(pl.col("text").str.head(1).alias("letter"))
    counts = letters.window(windows.tumbling(10)).agg(n=pl.len())
    late = counts.late()
    assert late.schema == EVENTS.schema
    found, left = counts.filter(pl.col("n") > 0).collect(), late.collect()
    flow.run(on="local")
    assert sorted(found.result().rows()) == [
        ("o", 10, 20, 1),
        ("t", 0, 10, 1),
        ("t", 20, 30, 1),
    ]
    assert left.result().rows() == [("a", 5, 3, "not")]


def test_a_late_row_changes_a_window_that_takes_late_rows() -> None:
    """The result comes again; the last one has all rows."""
    flow = ms.Flow("again")
    events = flow.from_frame(EVENTS).event_time("at")
    cut = events.window(windows.tumbling(10), allowed_lateness=5)
    counts = cut.agg(n=pl.len()).collect()
    flow.run(on="local")
    assert counts.result().rows()[-1] == (20, 30, 1)
    assert (0, 10, 2) in counts.result().rows()


def test_a_timestamp_far_ahead_does_not_move_time() -> None:
    """The row is taken like any other, and counted."""
    spec = AssignFrameTime(pl.col("at"), max_future_skew_ms=10)
    operator = FrameAssignTimestampsOperator((node(spec),), 0, ManualClock())
    made = operator.process(pl.DataFrame({"at": [5, 999, 4]}))
    assert made[TIME].to_list() == [5, 999, 4]
    assert made[ORIGIN_WATERMARK].to_list() == [None, None, 4]
    assert operator.ahead_count == 1
    assert operator.watermarks == {"": 4}


def test_a_row_without_a_timestamp_fails_the_job() -> None:
    """The message shows the row."""
    flow = ms.Flow("null")
    flow.from_frame(pl.DataFrame({"at": [1, None]})).event_time("at").collect()
    with pytest.raises(ms.OperatorError, match=r"\{'at': None\} has no timestamp"):
        flow.run(on="local")


def test_map_batches_must_keep_the_number_of_rows() -> None:
    """Which of fewer rows has which time, nobody could say."""
    flow = ms.Flow("fewer")
    timed(flow).map_batches(lambda batch: batch.head(1)).collect()
    with pytest.raises(ms.OperatorError, match="one output row for each input row"):
        flow.run(on="local")


def test_runs_of_panes_are_merged_when_there_are_many() -> None:
    """What windows have does not depend on how often their panes were looked at."""
    flow = ms.Flow("runs")
    frame = flow.from_frame(EVENTS.select("key", "at", "x"))
    cut = frame.event_time("at").group_by("key").window(windows.sliding(30, 10))
    cut.agg(total=pl.col("x").sum(), last=pl.col("x").last())
    spec: Any = flow.plan.nodes[-1].spec
    runs = PaneRuns(spec.aggregation, Panes(30, 10))
    for number in range(RUNS_MAX + 2):
        runs.add_rows(
            pl.DataFrame(
                {"key": ["a"], "x": [number], "__pane": [number % 3], "__time": [0]}
            )
        )
        runs.settle()
    made = pl.concat(runs.windows(-1, 0))
    count = RUNS_MAX + 2
    in_last_pane = max(number for number in range(count) if number % 3 == 2)
    assert made.rows() == [("a", 0, sum(range(count)), in_last_pane)]


def test_explain_shows_windows_and_where_parts_are_made() -> None:
    """Rows are combined before they move, unless somebody reads late ones."""
    flow = ms.Flow("explained")
    keyed = timed(flow).group_by("key")
    keyed.window(windows.tumbling("10s")).agg(pl.len()).collect()
    late = timed(flow).group_by("key").window(windows.session("1s")).agg(pl.len())
    late.collect()
    late.late().collect()
    text = flow.explain()
    assert "agg.local (tumbling(10s), combine)" in text
    assert "agg (tumbling(10s), merge)" in text
    assert "agg-2 (session(1s))" in text


MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "text is no time": (lambda f: f.event_time("key"), "Int64, in milliseconds"),
    "no such column": (lambda f: f.event_time("when"), "when"),
    "no event time": (lambda f: f.window(windows.tumbling(1)), "call .event_time"),
    "by the clock nobody is late": (
        lambda f: f.window(windows.tumbling(1, time="processing"), allowed_lateness=1),
        "leave out allowed_lateness",
    ),
    "two ways to say who is late": (
        lambda f: f.event_time("at", out_of_order=5, watermark="x"),
        "give one of them",
    ),
    "a watermark that is no time": (
        lambda f: f.event_time("at", watermark="text"),
        "Int64, in milliseconds",
    ),
    "no late rows by the clock": (
        lambda f: f.window(windows.session(5, time="processing")).agg(pl.len()).late(),
        "only windows of event time",
    ),
    "no window": (lambda f: f.window(10), "windows.count"),
    "count is never late": (
        lambda f: f.window(windows.count(2), allowed_lateness=1),
        "leave out allowed_lateness",
    ),
    "count has no late rows": (
        lambda f: f.window(windows.count(2)).agg(pl.len()).late(),
        "only windows of event time",
    ),
    "a name that bounds have": (
        lambda f: (
            f.event_time("at")
            .window(windows.tumbling(1))
            .agg(pl.len().alias("window_start"))
        ),
        "window_start",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_where_it_was_written(mistake: str) -> None:
    """One sentence, with the line of the user."""
    make, message = MISTAKES[mistake]
    with pytest.raises(ms.UsageError, match=message) as caught:
        make(ms.Flow("mistake").from_frame(EVENTS))
    assert "test_frame_time.py:" in str(caught.value)


@pytest.mark.slow
def test_windows_survive_crashes() -> None:
    """The rows of every window are those of a run without faults."""
    flow = ms.Flow("crashes")
    rows = [("abc"[i % 3], i * 7 % 23 + i, i) for i in range(60)]
    stream = flow.from_iterable(rows).event_time(lambda row: row[1], out_of_order=9)
    frame = stream.to_frame({"key": pl.String, "at": pl.Int64, "x": pl.Int64})
    sums = frame.group_by("key").window(windows.sliding(12, 5))
    totals = sums.agg(total=pl.col("x").sum(), n=pl.len())
    totals.collect()
    totals.late().collect()
    keyed = frame.group_by("key")
    keyed.window(windows.sliding(10, 5)).agg(pl.col("x").max()).collect()
    keyed.window(windows.session(4)).agg(n=pl.len()).collect()
    keyed.window(windows.count(4, 2)).agg(n=pl.len()).collect()
    simulate(flow, seeds=4, snapshots=True)
