"""Every construct of the API gives the same rows on every launcher.

A flow is made afresh for every run.  What it must give is written beside it in plain
Python; rows are compared as multisets, because only `sort_by` promises an order.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.simulation.frame_window_flows import Threes
from tests.support.launchers import REAL_LAUNCHERS, WIDTHS

import millstream as ms
from millstream.windows import global_window, tumbling

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.launchers import Launcher

    from millstream.windows import Window

    Case = tuple[Callable[[ms.Flow, int], None], Callable[[int], list[Any]]]


LINES = ["to be or not", "to be", "that is", "the question"] * 5
WORDS = [word for line in LINES for word in line.split()]
NUMBERS = list(range(50))


class Numbered(ms.StatefulFunction[int, int, tuple[int, int]]):
    """Numbers the values of a key and says at the end how many there were."""

    seen = ms.ValueState[int](default=0)
    values = ms.ListState[int]()
    kinds = ms.MapState[bool, int]()

    def on_record(self, key: int, value: int) -> list[tuple[int, int]]:
        self.seen.update(self.seen.get() + 1)
        self.values.append(value)
        is_odd = value % 2 == 1
        self.kinds.update(is_odd, (self.kinds.get(is_odd) or 0) + 1)
        return [(self.seen.get(), value // 10)]

    def on_end(self, key: int) -> list[tuple[int, int]]:
        return [(-len(self.values), len(self.kinds))]


class Squares(ms.Source[int]):
    """A source of one's own, in as many splits as there are tasks."""

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split(f"part {i}", (i, task_count)) for i in range(task_count)]

    def open(self, split: ms.Split, offset: int, config: ms.Config) -> SquareReader:
        rank, size = split.payload
        return SquareReader([i * i for i in NUMBERS[rank::size]], offset)


class SquareReader(ms.SourceReader[int]):
    """Reads some squares."""

    def __init__(self, rows: list[int], offset: int) -> None:
        self._rows, self._offset = rows, offset

    def read(self, rows: int) -> list[int] | None:
        batch = self._rows[self._offset : self._offset + rows]
        self._offset += len(batch)
        return batch or None

    @property
    def offset(self) -> int:
        return self._offset


def word_count(flow: ms.Flow, workers: int) -> None:
    lines = flow.from_iterable(LINES)
    lines.flat_map(str.split).group_by(str.upper).count().collect(Counter)


def row_by_row(flow: ms.Flow, workers: int) -> None:
    numbers = flow.from_iterable(lambda: range(50)).map(lambda i: i + 1)
    numbers = numbers.filter(lambda i: i % 3).inspect(abs)
    pairs = numbers.filter_map(lambda i: [i, -i] if i % 2 else None)
    pairs.flatten().map_batches(lambda rows: [i * 2 for i in rows]).collect(Counter)


def partitioning(flow: ms.Flow, workers: int) -> None:
    rows = flow.from_parallel(lambda rank, size: NUMBERS[rank::size]).shuffle()
    rows = rows.repartition_by(lambda i: -i).map(lambda i: i).max_parallelism(1)
    rows.buffered(ms.adaptive(4, "1ms")).shuffle().collect(Counter)


def broadcast(flow: ms.Flow, workers: int) -> None:
    flow.from_iterable(["x"]).broadcast().collect(Counter)


def keyed(flow: ms.Flow, workers: int) -> None:
    values = flow.from_iterable(NUMBERS).key_by(lambda i: i % 7).map(lambda i: i + 1)
    values = values.filter(lambda i: i % 2).flat_map(lambda i: [i, i]).inspect(abs)
    values.filter_map(lambda i: i or None).unkey().collect(Counter)


def rekeyed(flow: ms.Flow, workers: int) -> None:
    values = flow.from_iterable(NUMBERS).key_by(lambda i: i % 7)
    values.key_by(lambda i: i % 3).group_by(lambda i: i % 2).sum().collect(Counter)


def kept_keys(flow: ms.Flow, workers: int) -> None:
    timed = flow.from_iterable(NUMBERS).event_time(lambda i: i)
    sums = timed.key_by(lambda i: i % 3).sum().map(lambda total: total + 1)
    sums.join(timed.key_by(lambda i: i % 3, name="other").count()).collect(Counter)
    counts = timed.group_by(lambda i: i % 3, name="groups").window(tumbling(50))
    counts.count().map(lambda pair: pair[0] + pair[1]).collect(Counter)


def aggregations(flow: ms.Flow, workers: int) -> None:
    groups = flow.from_iterable(NUMBERS).group_by(lambda i: i % 4)
    groups.reduce(lambda x, y: x + y).collect(Counter)
    groups.fold(0, lambda n, i: n + i, merge=lambda x, y: x + y).collect(Counter)
    groups.min().merge(groups.max()).collect(Counter)
    groups.mean().collect(Counter)
    groups.unique().map(lambda pair: (pair[0], len(pair[1]))).collect(Counter)
    longest = ms.Aggregate("most", abs, max, max, lambda n: n + 1)
    groups.aggregate(longest).collect(Counter)


def first_and_last(flow: ms.Flow, workers: int) -> None:
    same = flow.from_iterable(NUMBERS).group_by(lambda i: i % 4).sum().unique()
    groups = same.group_by(lambda pair: pair[0])
    groups.first().collect(Counter)
    groups.last().collect(Counter)


def stateful(flow: ms.Flow, workers: int) -> None:
    values = flow.from_iterable([7] * 20 + [8] * 10).key_by(lambda i: i)
    values.process(Numbered()).drop_key().collect(Counter)
    values.map_with_state(0, lambda n, i: (n + 1, n)).collect(Counter)
    values.scan(lambda total, i: total + i).collect(Counter)
    values.scan(lambda n, i: n + 1, initial=100).drop_key().collect(Counter)


def joins(flow: ms.Flow, workers: int) -> None:
    left, right = flow.from_iterable(NUMBERS).split(2)
    left.merge(right.map(lambda i: -i), flow.from_iterable([99])).collect(Counter)
    ordered = left.sort_by(lambda i: i)
    ordered.zip(right.sort_by(lambda i: i, descending=True)).collect()


def ordering(flow: ms.Flow, workers: int) -> None:
    numbers = flow.from_iterable(NUMBERS)
    numbers.sort_by(lambda i: -i).limit(5).collect()
    numbers.map(lambda i: i % 5).unique().collect(Counter)
    numbers.limit(7).count()
    numbers.limit(0).collect()


def globals_(flow: ms.Flow, workers: int) -> None:
    numbers = flow.from_iterable(NUMBERS).map(lambda i: i)
    numbers.reduce(lambda x, y: x + y)
    numbers.fold(0, lambda n, i: n + i)
    numbers.fold(0, lambda n, i: n + 1, merge=lambda x, y: x + y)
    numbers.count()
    numbers.sum()
    numbers.min()
    numbers.max()
    numbers.mean()


def emptiness(flow: ms.Flow, workers: int) -> None:
    nothing: ms.Stream[int] = flow.from_iterable([])
    nothing.collect()
    nothing.count()
    nothing.sum()
    nothing.max()
    nothing.fold(5, lambda n, i: n + i)
    nothing.group_by(lambda i: i).count().collect()
    nothing.first()
    nothing.last()


def endless(flow: ms.Flow, workers: int) -> None:
    flow.from_iterable(count).map(lambda i: i).limit(10).count()


def endless_loop(flow: ms.Flow, workers: int) -> None:
    numbers = flow.from_parallel(count).map(lambda i: 3 + i % 5)
    numbers.loop(_counted_down).limit(7).collect()


def _counted_down(rows: ms.Stream[int]) -> tuple[ms.Stream[int], ms.Stream[int]]:
    lower = rows.map(lambda i: i - 1).shuffle()
    return lower.filter(lambda i: i > 0), lower.filter(lambda i: i <= 0)


def iterations(flow: ms.Flow, workers: int) -> None:
    numbers = flow.from_iterable(NUMBERS)
    doubled = numbers.iterate(lambda rows: rows.map(lambda i: 2 * i), max_rounds=5)
    doubled.filter(lambda i: i < 2**5 * 10).limit(8).map(lambda i: i % 2**5).collect()
    counted = numbers.cycle(
        0, lambda rows, _: rows, lambda state, _: state + 1, max_rounds=5
    )
    counted.limit(3).collect()


def joined_rounds(flow: ms.Flow, workers: int) -> None:
    numbers = flow.from_iterable(NUMBERS)
    halves = flow.from_iterable(range(25)).key_by(lambda i: 2 * i)

    def step(rows: ms.Stream[int]) -> ms.Stream[int]:
        half = rows.key_by(lambda i: i).join(halves, how="left").drop_key()
        found = half.map(lambda pair: 0 if pair[1] is None else pair[1])
        table = found.key_by(lambda i: i).join_table(halves, how="semi").drop_key()
        whole = table.join_broadcast(halves, lambda i: i)
        return whole.map(lambda pair: pair[0])

    numbers.iterate(step, max_rounds=3).collect(Counter)


def _joined_rounds_oracle() -> list[Any]:
    rows = NUMBERS
    for _ in range(3):
        rows = [0 if i % 2 else i // 2 for i in rows]
        rows = [i for i in rows if i % 2 == 0]
    return [Counter(rows)]


def ticking_loop(flow: ms.Flow, workers: int) -> None:
    ticks = flow.from_iterable([1, 2]).loop(lambda rows: (rows, rows))
    ticks.limit(50).count()


def unread_iterations(flow: ms.Flow, workers: int) -> None:
    ending = flow.from_iterable(lambda: range(50)).map(lambda _: -1)
    waiting = flow.from_parallel(count).iterate(lambda rows: rows, max_rounds=2)
    ticking = flow.from_iterable([1]).cycle(
        0, lambda rows, _: rows, lambda state, _: state + 1, until=lambda _: False
    )
    ending.merge(waiting).merge(ticking).limit(3).collect()


def timed_iterations(flow: ms.Flow, workers: int) -> None:
    timed = flow.from_iterable(NUMBERS).event_time(lambda i: i)
    raised = timed.iterate(lambda rows: rows.map(lambda i: i + 1), max_rounds=3)
    raised.shuffle().window(tumbling(10)).sum().collect(Counter)
    timed.cycle(
        0,
        lambda rows, state: (
            rows.map(lambda i: i + state.value).window(tumbling(10)).max()
        ),
        lambda state, most: state + sum(most),
        max_rounds=2,
    ).collect()


def frames_in_time(flow: ms.Flow, workers: int) -> None:
    numbers = pl.DataFrame({"i": NUMBERS}).with_columns(key=pl.col("i") % 3)
    frame = flow.from_frame(numbers)
    timed = frame.event_time("i")
    total, every = pl.col("i").sum(), pl.col("i").implode()

    def span(window: Window, rows: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame({"start": [window.start], "i": [rows["i"].sum()]})

    doubled = timed.iterate(lambda f: f.with_columns(pl.col("i") * 2), max_rounds=2)
    keyed = timed.group_by("key")
    for made in (
        keyed.window(tumbling(10)).agg(total).drop("window_end"),
        keyed.window(global_window(Threes())).agg(every),
        timed.window(tumbling(25)).map_window(
            span, schema={"start": pl.Int64, "i": pl.Int64}
        ),
        doubled.window(tumbling(25)).agg(total).drop("window_end"),
        frame.window(tumbling(10**15, time="processing")).agg(total),
    ):
        made.to_rows().map(lambda row: str([*row.values()])).collect(Counter)


def own_source(flow: ms.Flow, workers: int) -> None:
    flow.read(Squares()).sum()


def _by(modulus: int) -> dict[int, list[int]]:
    return {k: [i for i in NUMBERS if i % modulus == k] for k in range(modulus)}


def _keyed_oracle() -> Counter[Any]:
    kept = [(i % 7, i + 1) for i in NUMBERS if (i + 1) % 2]
    return Counter(kept + kept)


def _stateful_oracle() -> list[Any]:
    counts = {7: 20, 8: 10}
    numbered = [(n + 1, 0) for k in counts for n in range(counts[k])]
    return [
        Counter([*numbered, (-20, 1), (-10, 1)]),
        Counter((k, n) for k in counts for n in range(counts[k])),
        Counter((k, k * (n + 1)) for k in counts for n in range(counts[k])),
        Counter(101 + n for k in counts for n in range(counts[k])),
    ]


def _timed_iterations_oracle() -> list[Any]:
    tens = [range(i, i + 10) for i in range(0, 50, 10)]
    first = sum(max(ten) for ten in tens)
    return [
        Counter(sum(ten) + 3 * 10 for ten in tens),
        [first + sum(max(ten) + first for ten in tens)],
    ]


def _frames_in_time_oracle() -> list[Any]:
    sums: Counter[tuple[int, int]] = Counter()
    for i in NUMBERS:
        sums[i % 3, i // 10 * 10] += i
    halves = [[0, sum(range(25))], [25, sum(range(25, 50))]]
    rows: list[list[Any]] = [
        [[*place, total] for place, total in sums.items()],
        [[k, v[i : i + 3]] for k, v in _by(3).items() for i in range(0, len(v), 3)],
        halves,
        [[start, 4 * total] for start, total in halves],
        [[0, 10**15, sum(NUMBERS)]],
    ]
    return [Counter(map(str, some)) for some in rows]


FLOWS: dict[str, Case] = {
    "word_count": (word_count, lambda _: [_items(Counter(map(str.upper, WORDS)))]),
    "row_by_row": (
        row_by_row,
        lambda _: [
            Counter(2 * s * i for i in range(1, 51) if i % 3 and i % 2 for s in (1, -1))
        ],
    ),
    "partitioning": (partitioning, lambda _: [Counter(NUMBERS)]),
    "broadcast": (broadcast, lambda workers: [Counter({"x": workers})]),
    "keyed": (keyed, lambda _: [_keyed_oracle()]),
    "rekeyed": (rekeyed, lambda _: [Counter((k, sum(v)) for k, v in _by(2).items())]),
    "kept_keys": (
        kept_keys,
        lambda _: [
            Counter((k, (sum(v) + 1, len(v))) for k, v in _by(3).items()),
            Counter(k + len(v) for k, v in _by(3).items()),
        ],
    ),
    "aggregations": (
        aggregations,
        lambda _: [
            *[Counter((k, sum(v)) for k, v in _by(4).items())] * 2,
            Counter((k, f(v)) for k, v in _by(4).items() for f in (min, max)),
            Counter((k, sum(v) / len(v)) for k, v in _by(4).items()),
            Counter((k, len(v)) for k, v in _by(4).items()),
            Counter((k, max(v) + 1) for k, v in _by(4).items()),
        ],
    ),
    "first_and_last": (
        first_and_last,
        lambda _: [Counter((k, (k, sum(v))) for k, v in _by(4).items())] * 2,
    ),
    "stateful": (stateful, lambda _: _stateful_oracle()),
    "joins": (
        joins,
        lambda _: [
            Counter([*NUMBERS, *(-i for i in NUMBERS), 99]),
            list(zip(NUMBERS, reversed(NUMBERS), strict=True)),
        ],
    ),
    "ordering": (
        ordering,
        lambda _: [[49, 48, 47, 46, 45], Counter(range(5)), 7, []],
    ),
    "globals": (globals_, lambda _: [1225, 1225, 50, 50, 1225, 0, 49, 24.5]),
    "emptiness": (emptiness, lambda _: [[], 0, 0, None, 5, [], None, None]),
    "endless": (endless, lambda _: [10]),
    "iterations": (iterations, lambda _: [[0] * 8, [5]]),
    "joined_rounds": (joined_rounds, lambda _: _joined_rounds_oracle()),
    "timed_iterations": (timed_iterations, lambda _: _timed_iterations_oracle()),
    "frames_in_time": (frames_in_time, lambda _: _frames_in_time_oracle()),
    "own_source": (own_source, lambda _: [sum(i * i for i in NUMBERS)]),
}


ENDLESS: dict[str, Case] = {
    "endless_loop": (endless_loop, lambda _: [[0] * 7]),
    "ticking_loop": (ticking_loop, lambda _: [50]),
    "unread_iterations": (unread_iterations, lambda _: [[-1] * 3]),
}


def _items(counts: Counter[str]) -> Counter[tuple[str, int]]:
    return Counter(counts.items())


@pytest.mark.parametrize(("launcher", "workers"), WIDTHS, indirect=["launcher"])
@pytest.mark.parametrize("name", FLOWS)
def test_flow_gives_the_rows_of_plain_python(
    launcher: Launcher, name: str, workers: int
) -> None:
    """Where a flow runs, and how wide, is nobody's business but the cluster's."""
    build, oracle = FLOWS[name]
    flow = ms.Flow(name)
    build(flow, workers)

    assert launcher.run(flow, workers) == oracle(workers)


@pytest.mark.parametrize("launcher", REAL_LAUNCHERS, indirect=True)
@pytest.mark.parametrize("name", ENDLESS)
def test_limit_behind_a_loop_ends_what_would_go_on_for_ever(
    launcher: Launcher, name: str
) -> None:
    """Everybody learns that nobody reads: input, those who go round, other workers."""
    build, oracle = ENDLESS[name]
    flow = ms.Flow(name)
    build(flow, 2)

    assert launcher.run(flow, 2) == oracle(2)


@pytest.mark.parametrize("launcher", REAL_LAUNCHERS, indirect=True)
def test_output_files_hold_the_rows(launcher: Launcher, tmp_path: Any) -> None:
    """Sinks write where the workers are and commit where the driver is."""
    (tmp_path / "in.txt").write_text("a\nbb\nccc\n" * 100)
    flow = ms.Flow("files")
    lines = flow.read_text(tmp_path / "in.txt")
    lines.write_text(tmp_path / "text")
    lines.map(len).write_jsonl(tmp_path / "json")

    launcher.run(flow, 2)

    for folder, rows in (("text", ["a", "bb", "ccc"]), ("json", ["1", "2", "3"])):
        parts = (tmp_path / folder).glob("part*")
        written = [line for part in parts for line in part.read_text().splitlines()]
        assert Counter(written) == Counter(rows * 100)


@pytest.mark.parametrize("launcher", REAL_LAUNCHERS, indirect=True)
def test_error_of_a_user_function_names_the_operator(launcher: Launcher) -> None:
    """The same exception on every launcher, with the original as its cause."""
    flow = ms.Flow("failing")
    flow.from_iterable([3, 2, 1, 0]).map(lambda i: 6 // i, name="divide").collect()

    with pytest.raises(ms.OperatorError, match=r"divide.*ZeroDivisionError") as raised:
        launcher.run(flow, 2)

    assert raised.value.operator == "divide"
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_for_each_sees_every_row_once() -> None:
    """In one task or in all of them; here they share the memory of the test."""
    one: list[int] = []
    many: list[int] = []
    flow = ms.Flow("for_each")
    numbers = flow.from_iterable(NUMBERS)
    with pytest.warns(ms.LostChangesWarning, match="changes a list"):
        numbers.for_each(one.append)
    with pytest.warns(ms.LostChangesWarning, match=r"use collect\(\)"):
        numbers.shuffle().parallel_for_each(many.append)

    flow.run(on="local", workers=3)

    assert sorted(one) == sorted(many) == NUMBERS
