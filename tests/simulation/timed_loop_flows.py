"""Flows whose rows keep their times round loops, each with what plain Python says.

What goes round needs some laps to leave, rows of a later time may overtake it, and the
windows that it belongs to must wait for it, whatever crashes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
from tests.simulation.flows import Case, same

import millstream as ms
from millstream.plan.windows import Window

if TYPE_CHECKING:
    from tests.simulation.flows import Rows

COUNT = 48
DISORDER = 12
SIZE = 15

Token = tuple[int, int]
"""The number of a token, and how often it still goes round."""


def spread(rank: int, size: int) -> range:
    """Deal the numbers out to the tasks of a source."""
    return range(rank, COUNT, size)


def moment(number: int) -> int:
    """Return the timestamp of a token: out of order, some of them twice."""
    return number * 2 + (number * 7) % DISORDER - 20


def laps(number: int) -> int:
    """Return how often a token goes round; a few do so for long."""
    return 9 if number % 11 == 0 else number % 3


def key(number: int) -> int:
    """Return the key of a token."""
    return number % 4


def tokens(flow: ms.Flow) -> Any:
    """Return the tokens with their times."""
    made = flow.from_parallel(spread).map(lambda i: (i, laps(i)))
    return made.event_time(lambda token: moment(token[0]), out_of_order=2 * DISORDER)


def counted_by_window(rows: Any) -> Any:
    """Count the tokens of every key and window."""
    keyed = rows.key_by(lambda token: key(token[0]))
    return keyed.window(ms.windows.tumbling(SIZE)).with_window().count()


def expected_counts() -> list[Any]:
    """Return what `counted_by_window` gives."""
    found = Counter((key(i), moment(i) // SIZE) for i in range(COUNT))
    return [
        (number, (Window(pane * SIZE, (pane + 1) * SIZE), count))
        for (number, pane), count in found.items()
    ]


def timed_ring() -> Case:
    """Count tokens by time behind a shuffling loop; and in it, on their way out."""
    flow = ms.Flow("timed-ring")

    def lap(rows: Any) -> tuple[Any, Any]:
        moved = rows.shuffle()
        leaving = moved.filter(lambda token: token[1] == 0)
        counted_by_window(leaving).for_each(print, name="inside")
        on = moved.filter(lambda token: token[1] > 0)
        return on.map(lambda token: (token[0], token[1] - 1)), leaving

    counted_by_window(tokens(flow).loop(lap)).for_each(print, name="outside")
    expected = expected_counts()

    def check(rows: Rows) -> None:
        same(rows["inside"], expected)
        same(rows["outside"], expected)

    return Case(flow, check)


def timed_relay() -> Case:
    """Put tokens into the order of time behind a loop that shuffles on its way back."""
    flow = ms.Flow("timed-relay")

    def lap(rows: Any) -> tuple[Any, Any]:
        on = rows.filter(lambda token: token[1] > 0)
        again = on.map(lambda token: (token[0], token[1] - 1)).shuffle()
        return again, rows.filter(lambda token: token[1] == 0)

    ordered = tokens(flow).loop(lap).in_time_order()
    ordered.map(lambda token: token[0]).for_each(print, name="ordered")

    def check(rows: Rows) -> None:
        same(rows["ordered"], list(range(COUNT)))
        times = [moment(number) for number in rows["ordered"]]
        assert times == sorted(times)

    return Case(flow, check)


def timed_frames() -> Case:
    """Do as `timed_ring` does, with data frames."""
    flow = ms.Flow("timed-frames")
    made = tokens(flow).map(lambda token: {"i": token[0], "laps": token[1]})
    frame = made.to_frame({"i": pl.Int64, "laps": pl.Int64})

    def lap(rows: Any) -> tuple[Any, Any]:
        on = rows.filter(pl.col("laps") > 0)
        again = on.with_columns(pl.col("laps") - 1)
        return again, rows.filter(pl.col("laps") == 0)

    keyed = frame.loop(lap).group_by((pl.col("i") % 4).alias("key"))
    counts = keyed.window(ms.windows.tumbling(SIZE)).agg(n=pl.len())
    counts.collect(name="counts")
    expected = [(k, w.start, w.end, count) for k, (w, count) in expected_counts()]
    return Case(flow, lambda rows: same(rows["counts"], expected))


def timed_rounds() -> Case:
    """Let rounds have windows: of numbers, of their sums, and of these sums."""
    flow = ms.Flow("timed-rounds")
    timed = flow.from_parallel(spread).event_time(moment, out_of_order=2 * DISORDER)

    def halve(rows: Any) -> Any:
        keyed = rows.key_by(key)
        return keyed.window(ms.windows.tumbling(SIZE)).sum().drop_key()

    summed = timed.iterate(halve, reduce=lambda a, b: a + b, max_rounds=3)
    whole = summed.window(ms.windows.tumbling(3 * SIZE))
    whole.sum().for_each(print, name="sums")
    rows = [(moment(i), i) for i in range(COUNT)]
    for _ in range(3):
        sums = Counter[Any]()
        for time, value in rows:
            sums[time // SIZE, key(value)] += value
        rows = [((pane + 1) * SIZE - 1, value) for (pane, _), value in sums.items()]
    found = Counter[int]()
    for time, value in rows:
        found[time // (3 * SIZE)] += value
    return Case(flow, lambda made: same(made["sums"], list(found.values())))


def timed_cycle() -> Case:
    """Let every round of a cycle see the times of the same rows."""
    flow = ms.Flow("timed-cycle")
    timed = flow.from_parallel(spread).event_time(moment, out_of_order=2 * DISORDER)

    def body(rows: Any, state: ms.RoundState[int]) -> Any:
        changed = rows.map(lambda i: (i + state.value) % 17)
        return changed.window(ms.windows.tumbling(SIZE)).reduce(max)

    timed.cycle(1, body, lambda state, rows: state + sum(rows), max_rounds=4).for_each(
        print, name="state"
    )
    state = 1
    for _ in range(4):
        largest: dict[int, int] = {}
        for i in range(COUNT):
            pane, value = moment(i) // SIZE, (i + state) % 17
            largest[pane] = max(largest.get(pane, 0), value)
        state += sum(largest.values())
    return Case(flow, lambda rows: same(rows["state"], [state]))


TIMED_LOOP_CASES = (
    timed_ring,
    timed_relay,
    timed_frames,
    timed_rounds,
    timed_cycle,
)
