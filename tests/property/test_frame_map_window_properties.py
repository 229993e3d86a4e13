"""`map_window` of frames calls with the windows and rows that `map_window` of rows calls with.

Method: Hypothesis draws rows out of order, some without a key or with equal timestamps, the
kind of window, how much disorder was announced, and how many workers there are.  What came
too late must be the same as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.frame_window_flows import Threes
from tests.support.examples import examples

import millstream as ms
from millstream import windows
from millstream.plan.windows import CountWindows, GlobalWindow

if TYPE_CHECKING:
    from millstream.plan.windows import AnyWindow
    from millstream.windows import Window

Row = tuple[str | None, int, int | None]
"""Key, timestamp, value."""

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "", None]),
        st.integers(-30, 30),
        st.none() | st.integers(0, 9),
    ),
    max_size=20,
)
WINDOWS = st.one_of(
    st.builds(windows.sliding, st.integers(1, 12), st.integers(1, 12)),
    st.builds(windows.session, st.integers(1, 9)),
    st.builds(windows.count, st.integers(1, 5), st.integers(1, 5), exact=st.booleans()),
    st.just(windows.global_window(Threes())),
)
CUTS = st.sampled_from(["keys", "all"])
SCHEMA = {"key": pl.String, "at": pl.Int64, "x": pl.Int64}
MADE = {**SCHEMA, "start": pl.Int64, "end": pl.Int64}


def with_bounds(window: Window, rows: pl.DataFrame) -> pl.DataFrame:
    """Return as many rows as there are."""
    bounds = zip(("start", "end"), window, strict=True)
    return rows.with_columns(pl.lit(b, pl.Int64).alias(name) for name, b in bounds)


def rows_with_bounds(window: Window, rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(*row, *window) for row in rows]


def known(rows: Any) -> list[Any]:
    """Return rows in an order that does not depend on which task was quick."""
    return sorted(map(repr, rows))


@examples(0.5)
@given(ROWS, WINDOWS, st.integers(0, 8), st.integers(1, 3), CUTS)
def test_functions_get_the_windows_and_rows_that_those_of_streams_get(
    rows: list[Row], window: AnyWindow, out_of_order: int, workers: int, what: str
) -> None:
    """Every row of every window, late ones left out, at any number of workers."""
    if isinstance(window, CountWindows | GlobalWindow):
        # Where one of equal timestamps is the last of its window, either may be.
        rows = list({row[1]: row for row in rows}.values())
    flow = ms.Flow("both")
    timed = flow.from_iterable(rows).event_time(
        lambda row: row[1], out_of_order=out_of_order
    )
    frame = timed.to_frame(SCHEMA)
    cut = (frame.group_by("key") if what == "keys" else frame).window(window)
    mapped = cut.map_window(with_bounds, schema=MADE)
    found, late = mapped.collect(), mapped.late().collect()
    if what == "keys":
        keyed = timed.key_by(lambda row: row[0]).window(window)
        pairs = keyed.map_window(rows_with_bounds)
        expected, too_late = pairs.drop_key().collect(), pairs.late().collect()
    else:
        lists = timed.window(window).map_window(rows_with_bounds)
        expected, too_late = lists.collect(), lists.late().collect()
    flow.run(on="local", workers=workers)

    right = [row for part in expected.result() for row in part]
    assert known(found.result().rows()) == known(right)
    assert known(late.result().rows()) == known(
        value for _, value, _ in too_late.result()
    )


@examples(0.3)
@given(ROWS, WINDOWS, st.integers(1, 3))
def test_rows_of_a_window_are_in_the_order_of_their_timestamps(
    rows: list[Row], window: AnyWindow, workers: int
) -> None:
    """However they came; rows of one timestamp have no order among them."""
    flow = ms.Flow("order")
    frame = flow.from_iterable(rows).to_frame(SCHEMA).event_time("at", out_of_order=60)
    lists = {"at": pl.List(pl.Int64)}
    cut = frame.group_by("key").window(window)
    made = cut.map_window(
        lambda _, rows: rows.select(pl.col("at").implode()), schema=lists
    ).collect()
    flow.run(on="local", workers=workers)

    for times in made.result()["at"].to_list():
        assert times == sorted(times)
