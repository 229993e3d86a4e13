"""Whether a job goes on with state that its operators kept before the program changed.

Method: a flow reads half of its rows and is cancelled behind a savepoint; the changed flow
begins with it.  It must give what it gives without an interruption, or be refused with a
sentence that names the operator and what differs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.halfway import ROWS, Numbers, finished, interrupted

import millstream as ms
from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.halfway import Build

    from millstream.connectors.base import Source

W = ms.windows


def by_key(verb: str, *arguments: Any) -> Build:
    def build(flow: ms.Flow, source: Source[Any]) -> Any:
        grouped = flow.read(source, name="in").group_by(
            lambda row: row[0], value=lambda row: row[1]
        )
        return getattr(grouped, verb)(*arguments, name="op").collect(name="out")

    return build


def keyed(flow: ms.Flow, source: Source[Any], name: str = "in") -> Any:
    return flow.read(source, name=name).key_by(lambda row: row[0], name=f"{name}.k")


def timed(flow: ms.Flow, source: Source[Any], out_of_order: int = 1000) -> Any:
    rows = flow.read(source, name="in")
    return rows.event_time(lambda row: row[2], out_of_order=out_of_order, name="time")


def windows(window: Any, verb: str = "sum", out_of_order: int = 1000) -> Build:
    def build(flow: ms.Flow, source: Source[Any]) -> Any:
        rows = timed(flow, source, out_of_order).key_by(lambda row: row[0], name="k")
        values = rows.map(lambda row: row[1], name="v")
        return getattr(values.window(window), verb)(name="op").collect(name="out")

    return build


def joined(how: str, ttl: str | None = "1h") -> Build:
    def build(flow: ms.Flow, source: Source[Any]) -> Any:
        table = flow.from_iterable([(0, "a"), (1, "b")], name="side")
        right = table.key_by(lambda row: row[0], name="side.k")
        rows = keyed(flow, source).join(right, how=how, ttl=ttl, name="op")
        return rows.drop_key(name="d").collect(name="out")

    return build


def frame(
    flow: ms.Flow, source: Source[Any], kind: Any = pl.Int64, **more: Any
) -> ms.Frame:
    dicts = flow.read(source, name="in").map(
        lambda row: {"k": row[0], "v": row[1], "at": row[2]}, name="dicts"
    )
    schema = {"k": pl.Int64, "v": kind, "at": pl.Int64, **more}
    return dicts.to_frame(schema, name="frame")


def agg(*aggregates: Any, kind: Any = pl.Int64, key: str = "k") -> Build:
    def build(flow: ms.Flow, source: Source[Any]) -> Any:
        rows = frame(flow, source, kind).group_by(key)
        return rows.agg(*aggregates, name="op").collect(name="out")

    return build


def sorted_agg(*aggregates: Any) -> Build:
    def build(flow: ms.Flow, source: Source[Any]) -> Any:
        totals = frame(flow, source).group_by("k").agg(*aggregates, name="op")
        return totals.sort("k", name="sort").collect(name="out")

    return build


def frame_windows(window: Any, *aggregates: Any) -> Build:
    def build(flow: ms.Flow, source: Source[Any]) -> Any:
        rows = frame(flow, source).event_time("at", out_of_order=1000, name="time")
        windows = rows.group_by("k").window(window)
        return windows.agg(*aggregates, name="op").collect(name="out")

    return build


def verb(make: Callable[[Any], Any], *, is_frame: bool = False) -> Build:
    def build(flow: ms.Flow, source: Source[Any]) -> Any:
        rows: Any = frame(flow, source) if is_frame else flow.read(source, name="in")
        return make(rows).collect(name="out")

    return build


class Summed(ms.StatefulFunction[Any, Any, Any]):
    """The sum of a key's values, kept for an hour."""

    total = ms.ValueState[int](default=0, ttl="1h")

    def on_record(self, key: Any, value: Any) -> Any:
        self.total.update(self.total.get() + value[1])

    def on_end(self, key: Any) -> Any:
        yield self.total.get()


class SummedLonger(Summed):
    """The same, kept for longer."""

    total = ms.ValueState[int](default=0, ttl="2h")


class SummedShorter(Summed):
    """The same, kept for a second."""

    total = ms.ValueState[int](default=0, ttl="1s")


class Counted(Summed):
    """The same with one more part of the state."""

    more = ms.ListState[int]()


class AsMap(Summed):
    """Another kind of state under the same name."""

    total = ms.MapState[int, int]()  # type: ignore[assignment]


class Position(ms.OperatorState):
    """Numbers rows."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, row: Any) -> Any:
        self.count += 1
        return self.count, row

    def capture(self) -> Any:
        return self.count

    def restore(self, value: Any) -> None:
        self.count = value


class Other(Position):
    """Numbers rows, for all we know."""


def process(function: type[Summed]) -> Build:
    return lambda flow, source: (
        keyed(flow, source).process(function(), name="op").collect(name="out")
    )


def repeated(**options: Any) -> Build:
    return verb(
        lambda rows: rows.map(lambda row: row[1], name="v").iterate(
            lambda numbers: numbers.map(lambda n: n + 1, name="add"),
            **{"max_rounds": 2, "name": "op", **options},
        )
    )


def cycled(state: Any) -> Build:
    return verb(
        lambda rows: rows.map(lambda row: row[1], name="v").cycle(
            state,
            lambda numbers, _: numbers,
            lambda total, numbers: total + sum(numbers),
            max_rounds=2,
            name="op",
        )
    )


TOTAL, N = pl.col("v").sum().alias("total"), pl.len().alias("n")
LARGEST = pl.col("v").max().alias("largest")

CARRIED = {
    "nothing changed": (by_key("sum"), by_key("sum"), ""),
    "order of aggregates": (agg(TOTAL, N), agg(N, TOTAL), "keeps the same in another"),
    "other names of results": (agg(TOTAL), agg(pl.col("v").sum()), ""),
    "an aggregate less": (agg(TOTAL, N), agg(N), "keeps no longer"),
    "an aggregate more, of known parts": (
        agg(TOTAL, N),
        agg(TOTAL, N, (pl.col("v").sum() / pl.len()).alias("mean")),
        "",
    ),
    "an aggregate more, of known parts, before a sort": (
        sorted_agg(TOTAL, N),
        sorted_agg(N, TOTAL, (pl.col("v").sum() / pl.len()).alias("mean")),
        "keeps the same in another",
    ),
    "order in windows": (
        frame_windows(W.tumbling(300), TOTAL, N),
        frame_windows(W.tumbling(300), N, TOTAL),
        "keeps the same in another",
    ),
    "order in sessions": (
        frame_windows(W.session(5000), TOTAL, LARGEST),
        frame_windows(W.session(5000), LARGEST, TOTAL),
        "keeps the same in another",
    ),
    "order in count windows": (
        frame_windows(W.count(4), TOTAL, LARGEST),
        frame_windows(W.count(4), LARGEST, TOTAL),
        "keeps the same in another",
    ),
    "longer ttl of a join": (joined("inner"), joined("inner", "2h"), "ttl was"),
    "longer ttl of a value": (process(Summed), process(SummedLonger), "ttl of total"),
    "another handle": (process(Summed), process(Counted), "state also more: ListState"),
    "more disorder": (
        windows(W.tumbling(300)),
        windows(W.tumbling(300), out_of_order=1500),
        "out of order by was 1000 ms and is 1500 ms",
    ),
    "more rounds": (repeated(), repeated(max_rounds=3), "rounds at most was 2"),
}

REFUSED = {
    "sum to count": (by_key("sum"), by_key("count"), "aggregate"),
    "sum to max": (by_key("sum"), by_key("max"), "aggregate"),
    "fold from int to list": (
        by_key("fold", 0, lambda total, value: total + value),
        by_key("fold", [], lambda values, value: [*values, value]),
        "begins with",
    ),
    "own aggregate of the same name": (
        by_key("sum"),
        by_key(
            "aggregate",
            ms.Aggregate("sum", lambda v: v, lambda a, v: a * v, lambda a, b: a * b),
        ),
        "aggregate",
    ),
    "running": (
        lambda f, s: keyed(f, s).sum(name="op").collect(name="out"),
        lambda f, s: keyed(f, s).map(len).unique(name="op").collect(name="out"),
        "",
    ),
    "type of a sum": (agg(TOTAL), agg(TOTAL, kind=pl.Float64), "keeps"),
    "an aggregate more": (agg(TOTAL), agg(TOTAL, LARGEST), "keeps"),
    "another key": (agg(N), agg(N, key="v"), "keys"),
    "other windows": (windows(W.tumbling(300)), windows(W.tumbling(100)), "window"),
    "windows to count": (windows(W.tumbling(300)), windows(W.count(3)), "window"),
    "sessions": (windows(W.session(50)), windows(W.session(5000)), "window"),
    "sum to max in windows": (
        windows(W.tumbling(300)),
        windows(W.tumbling(300), "max"),
        "aggregate",
    ),
    "other windows of a frame": (
        frame_windows(W.tumbling(300), N),
        frame_windows(W.sliding(300, 100), N),
        "window",
    ),
    "an aggregate less in windows": (
        frame_windows(W.tumbling(300), TOTAL, N),
        frame_windows(W.tumbling(300), N),
        "keeps",
    ),
    "inner to full": (joined("inner"), joined("full"), "how"),
    "shorter ttl of a join": (joined("inner"), joined("inner", "1s"), "ttl"),
    "shorter ttl of a value": (process(Summed), process(SummedShorter), "ttl of total"),
    "value to map": (process(Summed), process(AsMap), "state"),
    "a handle less": (process(Counted), process(Summed), "state"),
    "limit": (
        verb(lambda rows: rows.limit(40, name="op")),
        verb(lambda rows: rows.limit(50, name="op")),
        "rows at most",
    ),
    "order of a sort": (
        verb(lambda rows: rows.sort_by(lambda row: row[1], name="op")),
        verb(lambda rows: rows.sort_by(lambda row: row[1], descending=True, name="op")),
        "order",
    ),
    "columns of unique rows": (
        verb(lambda rows: rows.unique("k", name="op"), is_frame=True),
        verb(lambda rows: rows.unique("v", name="op"), is_frame=True),
        "keys",
    ),
    "columns of collected frames": (
        verb(lambda rows: rows, is_frame=True),
        verb(lambda rows: rows.select("k"), is_frame=True),
        "columns",
    ),
    "operator state": (
        verb(lambda rows: rows.map(Position(), name="op")),
        verb(lambda rows: rows.map(Other(), name="op")),
        "function",
    ),
    "state of a cycle": (cycled(0), cycled(0.5), "begins with"),
    "iterate to cycle": (repeated(), cycled(0), "kind"),
}


@pytest.mark.parametrize("change", CARRIED)
@pytest.mark.parametrize("workers", [1, 3])
def test_what_fits_is_carried_over_and_listed(
    change: str, workers: int, tmp_path: Path
) -> None:
    """State is matched by what it is, in whichever order; nobody is left guessing."""
    before, after, note = CARRIED[change]
    savepoint = interrupted(before, tmp_path)

    result, job = finished(after, resume_from=savepoint, workers=workers)

    assert result == finished(after)[0]
    assert note in "; ".join(job.migrations)
    assert bool(note) == any(
        "'op'" in each or "'time'" in each for each in job.migrations
    )


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_program_may_change_again_and_again(tmp_path: Path, backend: str) -> None:
    """The first snapshot after a change builds on no older file."""
    one, other = sorted_agg(TOTAL, N), sorted_agg(N, TOTAL)
    kept: dict[str, Any] = {"state_backend": backend}
    first = interrupted(one, tmp_path, "first", 20, workers=2, **kept)
    second = interrupted(
        other, tmp_path, "second", 40, resume_from=first, workers=3, **kept
    )

    result, job = finished(one, resume_from=second, workers=2, **kept)

    assert result == finished(one)[0]
    assert "'op' goes on with its state" in job.migrations[0]


@pytest.mark.parametrize("change", REFUSED)
def test_what_does_not_fit_is_refused_with_both_fingerprints(
    change: str, tmp_path: Path
) -> None:
    """Old numbers under a new meaning would be wrong without a word."""
    before, after, what = REFUSED[change]
    savepoint = interrupted(before, tmp_path)

    with pytest.raises(SnapshotError) as caught:
        finished(after, resume_from=savepoint)

    text = str(caught.value)
    name = "'out'" if change == "columns of collected frames" else "'op'"
    assert text.startswith(f"the state of {name} in epoch 1 is that of ")
    assert f"and in this flow {name} is " in text
    if what:
        assert re.search(f"which differ in [^;]*{what}", text)
    assert "another name= and pass drop_state=True" in text


def test_the_way_out_leads_out(tmp_path: Path) -> None:
    """Under another name, with drop_state, it begins empty; and goes on like that."""
    savepoint = interrupted(by_key("sum"), tmp_path)

    def renamed(flow: ms.Flow, source: Source[Any]) -> Any:
        grouped = flow.read(source, name="in").group_by(lambda row: row[0])
        return grouped.count(name="other").collect(name="out")

    state = tmp_path / "state"
    options = {"resume_from": savepoint, "state": state}
    rows, _ = finished(renamed, drop_state=True, **options)
    assert rows == ["(0, 10)", "(1, 10)", "(2, 10)"]
    again, _ = finished(renamed, state=state)
    assert again == rows


def test_a_source_that_was_added_is_cut_once(tmp_path: Path) -> None:
    """How it was cut is stored with the rest, so that its offsets fit at any width."""
    savepoint = interrupted(by_key("sum"), tmp_path)
    text = tmp_path / "rows.txt"
    text.write_text("a\n" * 1000)

    def wider(flow: ms.Flow, source: Source[Any]) -> Any:
        flow.read_text(text, name="lines").collect(name="lines.out")
        return by_key("sum")(flow, source)

    state = tmp_path / "state"
    rows, _ = finished(wider, resume_from=savepoint, state=state, workers=3)
    again, _ = finished(wider, state=state, workers=2)
    assert again == rows
    flow = ms.Flow("fitting")
    wider(flow, Numbers(len(ROWS)))
    job = flow.run(on="local", state=state, workers=1)
    assert job.result()["lines.out"] == ["a"] * 1000


def test_rows_of_a_sort_with_other_columns_are_refused(tmp_path: Path) -> None:
    """They could not be put beside those that come."""
    savepoint = interrupted(
        verb(lambda rows: rows.sort("v", name="op"), is_frame=True), tmp_path
    )
    fewer = verb(lambda rows: rows.select("v", "k").sort("v", name="op"), is_frame=True)
    order = verb(
        lambda rows: rows.select("at", "v", "k").sort("v", name="op"), is_frame=True
    )

    with pytest.raises(
        SnapshotError, match=r"rows of 'op' with the columns .*another n"
    ):
        finished(fewer, resume_from=savepoint)
    result, job = finished(order, resume_from=savepoint)
    assert result == finished(order)[0]
    assert "'op' goes on with its state: columns was k: Int64" in job.migrations[0]


# Names that were given by counting


def two_sums(flow: ms.Flow, source: Source[Any], *names: str | None) -> Any:
    rows = flow.read(source, name="in")
    handles = [
        rows.group_by(lambda row: row[0], value=lambda row: row[1])
        .sum(name=name)
        .collect(name=f"out-{number}")
        for number, name in enumerate(names)
    ]
    return handles[-1]


@pytest.mark.parametrize("is_dropping", [False, True])
def test_an_unnamed_operator_does_not_take_over_the_state_of_another(
    tmp_path: Path, *, is_dropping: bool
) -> None:
    """One that is put before another of its kind gets the name that the other had."""
    savepoint = interrupted(lambda f, s: two_sums(f, s, None), tmp_path)

    with pytest.raises(SnapshotError, match=r"1 unnamed 'sum' and the flow has 2"):
        finished(
            lambda f, s: two_sums(f, s, None, None),
            resume_from=savepoint,
            drop_state=is_dropping,
        )

    def named(flow: ms.Flow, source: Source[Any]) -> Any:
        return two_sums(flow, source, "fresh", "sum")

    result, _ = finished(named, resume_from=savepoint)
    assert result == finished(named)[0]


def test_unnamed_operators_that_changed_places_are_refused(tmp_path: Path) -> None:
    """What each of them reads tells them apart."""

    def build(flow: ms.Flow, source: Source[Any], *, swapped: bool = False) -> Any:
        pair = [flow.read(source, name="in"), flow.from_iterable(ROWS, name="other")]
        handles = [
            rows.group_by(lambda row: row[0]).count().collect()
            for rows in (reversed(pair) if swapped else pair)
        ]
        return handles[-1]

    savepoint = interrupted(build, tmp_path)
    with pytest.raises(SnapshotError, match=r"'(collect|count)' read '\w+' when"):
        finished(lambda f, s: build(f, s, swapped=True), resume_from=savepoint)
