"""Flows for jobs that take snapshots, each with what plain Python says about its rows.

All of them have state and rows on their way while epochs pass, and most write to a sink
that commits.  `in_order` looks at the order too: what a sink has committed of one key
and one source must come in the order in which the source had it.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import polars as pl
from tests.simulation.flows import Case, same

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.flows import Rows

COUNT = 80
NUMBERS = range(COUNT)
KEYS = 7
FULL_LIST = 4


def spread(rank: int, size: int) -> range:
    """Deal the numbers out to the tasks of a source."""
    return range(rank, COUNT, size)


def counted() -> Case:
    """Count by key; collect and write the counts."""
    flow = ms.Flow("counted")
    numbers = flow.from_parallel(spread)
    counts = numbers.group_by(lambda i: i % KEYS).count()
    counts.collect(name="counts")
    numbers.map(str).write_text("nowhere", name="texts")
    expected = list(Counter(i % KEYS for i in NUMBERS).items())

    def check(rows: Rows) -> None:
        same(rows["counts"], expected)
        same(rows["texts"], [str(i) for i in NUMBERS])

    return Case(flow, check)


def merged() -> Case:
    """Two sources through three shuffles."""
    flow = ms.Flow("merged")
    left = flow.from_parallel(spread, name="left").map(lambda i: ("left", i))
    right = flow.from_iterable(NUMBERS, name="right").map(lambda i: ("right", i))
    both = left.shuffle().merge(right.repartition_by(lambda row: row[1] % 3))
    both.shuffle().for_each(print, name="rows")
    both.group_by(lambda row: row[0]).count().collect(name="counts")

    def check(rows: Rows) -> None:
        expected = [(side, i) for side in ("left", "right") for i in NUMBERS]
        same(rows["rows"], expected)
        same(rows["counts"], [("left", COUNT), ("right", COUNT)])

    return Case(flow, check)


class Inventory(ms.StatefulFunction[int, int, Any]):
    """Keeps the last values of a key in a list and a map, and empties both at times."""

    last = ms.ListState[int]()
    times = ms.MapState[int, int]()

    def on_record(self, key: int, value: int) -> Iterator[Any]:
        self.last.append(value)
        self.times.update(value % 3, (self.times.get(value % 3) or 0) + 1)
        if len(self.last) == FULL_LIST:
            yield (key, self.last.get(), sorted(self.times.items()))
            self.last.clear()
            if value % 2:
                self.times.clear()
            else:
                self.times.remove(value % 3)


def inventory_rows() -> list[Any]:
    """Return what `Inventory` says when every key has its values in order."""
    rows: list[Any] = []
    last: dict[int, list[int]] = {}
    times: dict[int, Counter[int]] = {}
    for value in NUMBERS:
        key = value % KEYS
        last.setdefault(key, []).append(value)
        own = times.setdefault(key, Counter())
        own[value % 3] += 1
        if len(last[key]) == FULL_LIST:
            rows.append((key, (key, last.pop(key), sorted(own.items()))))
            if value % 2:
                own.clear()
            else:
                del own[value % 3]
    return rows


def stateful() -> Case:
    """State with deletions, and nothing that is written: an older epoch may be used."""
    flow = ms.Flow("stateful")
    keyed = flow.from_iterable(NUMBERS).key_by(lambda i: i % KEYS)
    keyed.process(Inventory()).collect(name="lists")
    expected = inventory_rows()
    return Case(flow, lambda rows: same(rows["lists"], expected))


def late_writing() -> Case:
    """Written are only totals, at the end: until then an older epoch may be used."""
    flow = ms.Flow("late-writing")
    numbers = flow.from_parallel(spread)
    counts = numbers.group_by(lambda i: i % KEYS).count()
    counts.map(str).write_text("nowhere", name="totals")
    numbers.collect(name="numbers")
    totals = [str(pair) for pair in Counter(i % KEYS for i in NUMBERS).items()]

    def check(rows: Rows) -> None:
        same(rows["totals"], totals)
        same(rows["numbers"], list(NUMBERS))

    return Case(flow, check)


def sorted_top() -> Case:
    """Sort beyond memory, with a limit behind that ends the flow early."""
    flow = ms.Flow("sorted-top")
    numbers = flow.from_parallel(spread)
    numbers.sort_by(lambda i: (i % 5, -i)).limit(20).collect(name="top")
    numbers.for_each(print, name="all")
    expected = sorted(NUMBERS, key=lambda i: (i % 5, -i))[:20]

    def check(rows: Rows) -> None:
        assert rows["top"] == expected
        same(rows["all"], list(NUMBERS))

    return Case(flow, check)


def zipped() -> Case:
    """Two sources row by row: at most cuts one side is ahead of the other."""
    flow = ms.Flow("zipped")
    left = flow.from_iterable(NUMBERS, name="left").map(lambda i: -i)
    right = flow.from_parallel(spread, name="right").map(lambda i: i * i)
    left.zip(right).for_each(print, name="pairs")

    def check(rows: Rows) -> None:
        same([a for a, _ in rows["pairs"]], [-i for i in NUMBERS])
        same([b for _, b in rows["pairs"]], [i * i for i in NUMBERS])

    return Case(flow, check)


def scanned() -> Case:
    """Sum by key after every row, which depends on all rows before."""
    flow = ms.Flow("scanned")
    numbers = flow.from_iterable(NUMBERS).max_parallelism(1)
    sums = numbers.key_by(lambda i: i % 5).group_by(lambda i: i % 5)
    sums.scan(lambda total, i: total + i).for_each(print, name="sums")

    def check(rows: Rows) -> None:
        for key in range(5):
            expected = list(accumulate(i for i in NUMBERS if i % 5 == key))
            assert [total for k, total in rows["sums"] if k == key] == expected

    return Case(flow, check)


def framed() -> Case:
    """Aggregate a data frame by key."""
    flow = ms.Flow("framed")
    frame = pl.DataFrame({"key": [i % KEYS for i in NUMBERS], "value": list(NUMBERS)})
    source = flow.from_frame(frame)
    totals = source.group_by("key").agg(total=pl.col("value").sum())
    totals.collect(name="totals")
    source.to_rows().for_each(print, name="rows")
    expected = frame.group_by("key").agg(total=pl.col("value").sum()).rows()

    def check(rows: Rows) -> None:
        same(rows["totals"], expected)
        same([row["value"] for row in rows["rows"]], list(NUMBERS))

    return Case(flow, check)


def in_order() -> Case:
    """Rows with source and number by key: each source's must come in order."""
    flow = ms.Flow("in-order")
    rows = flow.from_parallel(
        lambda rank, size: ((rank, i) for i in range(0, COUNT, size))
    )
    placed = rows.repartition_by(lambda row: row[1] % KEYS)
    placed.for_each(print, name="written")
    placed.collect(name="collected")

    def check(found: Rows) -> None:
        same(found["written"], found["collected"])
        for name in ("written", "collected"):
            last: dict[Any, int] = {}
            for source, number in found[name]:
                channel = (source, number % KEYS)
                assert last.get(channel, -1) < number, "the order is not the source's"
                last[channel] = number
        size = max(source for source, _ in found["written"]) + 1
        expected = [(rank, i) for rank in range(size) for i in range(0, COUNT, size)]
        same(found["written"], expected)

    return Case(flow, check)


SMALL = range(6)
SMALL_KEYS = 3


def small() -> Case:
    """Count by key and write every row, in as few rows as three epochs need."""
    flow = ms.Flow("small")
    numbers = flow.from_parallel(lambda rank, size: SMALL[rank::size])
    numbers.group_by(lambda i: i % SMALL_KEYS).count().collect(name="counts")
    numbers.shuffle().map(str).write_text("nowhere", name="texts")
    expected = list(Counter(i % SMALL_KEYS for i in SMALL).items())

    def check(rows: Rows) -> None:
        same(rows["counts"], expected)
        same(rows["texts"], [str(i) for i in SMALL])

    return Case(flow, check)


def small_late() -> Case:
    """Collect every row, and write nothing before the end."""
    flow = ms.Flow("small-late")
    numbers = flow.from_parallel(lambda rank, size: SMALL[rank::size])
    counts = numbers.group_by(lambda i: i % SMALL_KEYS).count()
    counts.map(str).write_text("nowhere", name="texts")
    numbers.collect(name="numbers")
    expected = Counter(i % SMALL_KEYS for i in SMALL).items()

    def check(rows: Rows) -> None:
        same(rows["texts"], [str(pair) for pair in expected])
        same(rows["numbers"], list(SMALL))

    return Case(flow, check)


CASES = (
    counted,
    merged,
    stateful,
    sorted_top,
    zipped,
    scanned,
    framed,
    in_order,
)
