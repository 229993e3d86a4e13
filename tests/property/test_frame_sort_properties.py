"""Sorting of frames against Polars, with memory for a row or two and runs on disk.

Method: Hypothesis draws rows of any type with nulls, NaN, extremes and repetitions, what
to sort by, and where batches end.  The rows must come in the very order in which Polars
puts them, equal ones in that of arrival.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.support.examples import examples
from tests.support.framing import VALUES, cuts, frames
from tests.support.making import operators

import millstream as ms
from millstream.config import Config, configured
from millstream.operators.frames.runs import FAN_IN, RowOrder, SortedRuns
from millstream.plan.frames import SortFrame
from millstream.testing import simulate

COLUMNS = {"one": VALUES, "two": {pl.Int8(): st.integers(0, 2)}}
MEMORY = st.sampled_from([1, 40, 300, 10**6])


@st.composite
def orders(draw: st.DrawFn) -> SortFrame:
    by = draw(st.sampled_from([("one",), ("two",), ("two", "one"), ("one", "two")]))
    flags = st.tuples(*(st.booleans() for _ in by))
    return SortFrame(by, draw(flags), draw(flags))


def by_polars(frame: pl.DataFrame, spec: SortFrame) -> pl.DataFrame:
    rows = frame.sort(
        spec.by,
        descending=list(spec.descending),
        nulls_last=list(spec.nulls_last),
        maintain_order=True,
    )
    return rows if spec.limit is None else rows.head(spec.limit)


@examples(1.2)
@given(
    data=st.data(),
    frame=frames(COLUMNS, rows_max=40),
    spec=orders(),
    limit=st.none() | st.integers(0, 12),
    memory=MEMORY,
)
def test_rows_come_in_the_order_of_polars(
    data: st.DataObject,
    frame: pl.DataFrame,
    spec: SortFrame,
    limit: int | None,
    memory: int,
) -> None:
    """However many runs went to disk on the way, and wherever batches end."""
    spec = replace(spec, limit=limit)
    numbered = frame.with_row_index("place")
    (operator,) = operators([spec], configured(Config(), {"sort_memory_bytes": memory}))
    for piece in data.draw(cuts(numbered)):
        operator.process(piece)
    made: list[Any] = list(operator.finish())
    operator.close()

    rows = pl.concat([numbered.clear(), *made])
    assert_frame_equal(rows, by_polars(numbered, spec))


@examples(0.25)
@given(frame=frames(COLUMNS, rows_max=FAN_IN * 6), spec=orders())
def test_more_runs_than_are_merged_at_a_time_make_the_same_order(
    frame: pl.DataFrame, spec: SortFrame
) -> None:
    """A run of every row, merged in several rounds; equal rows keep their order."""
    numbered = frame.with_row_index("place")
    runs = SortedRuns(RowOrder(spec.by, spec.descending, spec.nulls_last), 1)
    for row in numbered.iter_slices(1):
        runs.add(row)
    rows = pl.concat([numbered.clear(), *runs.merged()])
    runs.close()

    assert_frame_equal(rows, by_polars(numbered, spec))


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@examples(0.1)
@given(
    frame=frames(COLUMNS),
    buffer=st.integers(1, 9),
    memory=MEMORY,
    limit=st.none() | st.integers(0, 30),
)
def test_flow_sorts_as_polars_does(
    workers: int, frame: pl.DataFrame, buffer: int, memory: int, limit: int | None
) -> None:
    """At any number of workers; the place of a row tells equal ones apart."""
    numbered = frame.with_row_index("place")
    flow = ms.Flow("sort")
    begun = flow.from_frame(numbered)
    ordered = begun.sort("one", "place", descending=[True, False], nulls_last=True)
    result = (ordered if limit is None else ordered.limit(limit)).collect()
    flow.run(
        on="local",
        workers=workers,
        frame_buffer=ms.fixed(buffer),
        sort_memory_bytes=memory,
    )

    spec = SortFrame(("one", "place"), (True, False), (True, True), limit)
    assert_frame_equal(result.result(), by_polars(numbered, spec))


def test_sort_with_runs_on_disk_survives_the_simulator() -> None:
    """The same order under delays, clogs and freezes, or a clear failure."""
    flow = ms.Flow("sort")
    numbers = pl.DataFrame({"x": [i * 37 % 101 for i in range(101)]})
    flow.from_frame(numbers).sort("x").collect()

    assert simulate(flow, seeds=range(8), sort_memory_bytes=64).is_clean
