"""Flows with loops for jobs that take snapshots, each with what plain Python says.

`ring`, `relay` and `bank` go round a parallel loop that shuffles: tokens that must neither
vanish nor double, and money that is nowhere but in accounts and on its way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
from tests.simulation.flows import Case, same
from tests.simulation.late_side_flows import LATE_SIDE_CASES
from tests.simulation.loop_join_flows import LOOP_JOIN_CASES

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.flows import Rows


COUNT = 24
ACCOUNTS = 5
LAPS = 6


def spread(rank: int, size: int) -> range:
    """Deal the numbers out to the tasks of a source."""
    return range(rank, COUNT, size)


def ring() -> Case:
    """Tokens that go round a number of times, each time to another task."""
    flow = ms.Flow("ring")
    tokens = flow.from_parallel(spread).map(lambda i: (i, 0))

    def lap(rows: Any) -> tuple[Any, Any]:
        moved = rows.map(lambda token: (token[0], token[1] + 1)).shuffle()
        return (
            moved.filter(lambda token: token[1] < LAPS + token[0] % 3),
            moved.filter(lambda token: token[1] >= LAPS + token[0] % 3),
        )

    tokens.loop(lap).for_each(print, name="tokens")
    expected = [(i, LAPS + i % 3) for i in range(COUNT)]
    return Case(flow, lambda rows: same(rows["tokens"], expected))


def relay() -> Case:
    """Do the like where only the way back shuffles: barriers come round early there."""
    flow = ms.Flow("relay")
    tokens = flow.from_parallel(spread).shuffle().map(lambda i: (i, 0))

    def lap(rows: Any) -> tuple[Any, Any]:
        moved = rows.map(lambda token: (token[0], token[1] + 1))
        return (
            moved.filter(lambda token: token[1] < LAPS + token[0] % 3).shuffle(),
            moved.filter(lambda token: token[1] >= LAPS + token[0] % 3),
        )

    tokens.loop(lap).for_each(print, name="tokens")
    expected = [(i, LAPS + i % 3) for i in range(COUNT)]
    return Case(flow, lambda rows: same(rows["tokens"], expected))


class Account(ms.StatefulFunction[int, tuple[int, int], Any]):
    """Keeps what was paid in, and passes it on as long as it should move."""

    balance = ms.ValueState[int]()

    def on_record(self, key: int, value: tuple[int, int]) -> Iterator[Any]:
        amount, laps = value
        if laps == 0:
            self.balance.update((self.balance.get() or 0) + amount)
            yield ("kept", amount)
        else:
            yield (key * 3 + laps) % ACCOUNTS, amount, laps - 1

    def on_end(self, key: int) -> Iterator[Any]:
        yield ("balance", key, self.balance.get() or 0)


def balances() -> dict[int, int]:
    """Return what accounts have when all money has stopped."""
    found: dict[int, int] = defaultdict(int)
    for i in range(COUNT):
        account, laps = i % ACCOUNTS, i % LAPS
        while laps:
            account, laps = (account * 3 + laps) % ACCOUNTS, laps - 1
        found[account] += i + 1
    return found


def bank() -> Case:
    """Money that moves between accounts; by key, with state, through a shuffling loop."""
    flow = ms.Flow("bank")
    payments = flow.from_parallel(spread).map(lambda i: (i % ACCOUNTS, i + 1, i % LAPS))

    def transfer(rows: Any) -> tuple[Any, Any]:
        keyed = rows.key_by(lambda row: row[0]).map(lambda row: row[1:])
        made = keyed.process(Account()).drop_key()
        return (
            made.filter(lambda row: isinstance(row[0], int)),
            made.filter(lambda row: not isinstance(row[0], int)),
        )

    payments.loop(transfer).for_each(print, name="bank")
    expected: list[Any] = [("kept", i + 1) for i in range(COUNT)]
    expected += [("balance", key, balance) for key, balance in balances().items()]
    return Case(flow, lambda rows: same(rows["bank"], expected))


def iterated() -> Case:
    """Sum by key what was summed by key, without repetitions, rounds in every round."""
    flow = ms.Flow("iterated")

    def outer(rows: Any) -> Any:
        sums = rows.group_by(lambda i: i % ACCOUNTS).sum()
        spread_out = sums.flat_map(lambda pair: [pair[1], pair[0]]).unique()
        return spread_out.iterate(
            lambda inner: inner.map(lambda i: i + 1).shuffle(), max_rounds=2
        )

    numbers = flow.from_parallel(spread)
    numbers.iterate(outer, max_rounds=3).for_each(print, name="sums")
    rows = list(range(COUNT))
    for _ in range(3):
        sums = Counter[int]()
        for i in rows:
            sums[i % ACCOUNTS] += i
        rows = [i + 2 for i in {i for pair in sums.items() for i in pair}]
    return Case(flow, lambda found: same(found["sums"], rows))


def cycled() -> Case:
    """Show a state to every row, behind a shuffle, and let all of them change it."""
    flow = ms.Flow("cycled")

    def body(rows: Any, state: ms.RoundState[int]) -> Any:
        return rows.shuffle().map(lambda i: (i * 7 + state.value) % 11)

    flow.from_parallel(spread).cycle(
        1, body, lambda state, rows: state + sum(rows), max_rounds=5
    ).for_each(print, name="state")
    state = 1
    for _ in range(5):
        state += sum((i * 7 + state) % 11 for i in range(COUNT))
    return Case(flow, lambda rows: same(rows["state"], [state]))


def neighbours(vertex: int) -> list[int]:
    """Return the vertices beside one; there are three chains."""
    return [v for v in (vertex - 3, vertex + 3) if 0 <= v < COUNT]


def components() -> Case:
    """Find the least number of every component by those that got better."""
    flow = ms.Flow("components")

    def tell(better: Any) -> Any:
        told = better.unkey().flat_map(
            lambda pair: [(v, pair[1]) for v in neighbours(pair[0])]
        )
        return told.key_by(lambda pair: pair[0]).map(lambda pair: pair[1])

    least = (
        flow.from_parallel(spread)
        .key_by(lambda v: v)
        .delta_iterate(
            lambda known, new: new if known is None or new < known else None, tell
        )
    )
    least.for_each(print, name="components")
    expected = [(v, v % 3) for v in range(COUNT)]
    return Case(flow, lambda rows: same(rows["components"], expected))


def shortest() -> Case:
    """Do the like on data frames, with roads of several lengths joined in every round."""
    flow = ms.Flow("shortest")
    pairs = [(v, n, 1 + (v * n) % 4) for v in range(COUNT) for n in neighbours(v)]
    roads = pl.DataFrame(pairs, schema=["from", "to", "more"], orient="row")
    start = flow.from_frame(pl.DataFrame({"place": [0, 1, 2], "km": [0, 0, 0]}))

    def on(better: Any) -> Any:
        going = better.join(roads, left_on="place", right_on="from")
        return going.select(place=pl.col("to"), km=pl.col("km") + pl.col("more"))

    best = start.delta_iterate("place", pl.col("km").min(), on)
    best.to_rows().map(lambda row: tuple(row.values())).for_each(print, name="shortest")
    known = {0: 0, 1: 0, 2: 0}
    for _ in range(COUNT):
        for origin, target, more in pairs:
            if origin in known:
                way = known[origin] + more
                known[target] = min(known.get(target, way), way)
    expected = list(known.items())
    return Case(flow, lambda rows: same(rows["shortest"], expected))


def best_depths(numbers: list[int]) -> dict[int, int]:
    """Halve the numbers down to one; return the most steps to each number on the way."""
    depths = dict.fromkeys(numbers, 0)
    for number in sorted(numbers, reverse=True):
        depth = 0
        while number > 1:
            number, depth = number // 2, depth + 1  # noqa: PLW2901 - on its way
            depths[number] = max(depths.get(number, 0), depth)
    return depths


def solved() -> Case:
    """Find the best of every key, and go on with some of them, in every round."""
    flow = ms.Flow("solved")

    def halve(better: Any) -> Any:
        halves = better.unkey().filter(lambda pair: pair[0] > 1)
        keyed = halves.key_by(lambda pair: pair[0] // 2)
        return keyed.map(lambda pair: pair[1] + 1)

    def outer(rows: Any) -> Any:
        depths = rows.key_by(lambda i: i).map(lambda _: 0)
        best = depths.delta_iterate(
            lambda known, new: new if known is None or new > known else None, halve
        )
        odd = best.unkey().filter(lambda pair: pair[0] % 2)
        return odd.map(lambda pair: 2 * pair[0] + pair[1])

    numbers = flow.from_parallel(spread)
    numbers.iterate(outer, max_rounds=3).for_each(print, name="solved")
    rows = list(range(COUNT))
    for _ in range(3):
        rows = [2 * i + depth for i, depth in best_depths(rows).items() if i % 2]
    return Case(flow, lambda found: same(found["solved"], rows))


ENOUGH = 20


def endless(rank: int, size: int) -> Iterator[int]:
    """Deal all numbers out to the tasks of a source."""
    return count(rank, size)


def enough() -> Case:
    """Need no more of a loop than its first rows, of input that never ends."""
    flow = ms.Flow("enough")
    tokens = flow.from_parallel(endless)

    def lap(rows: Any) -> tuple[Any, Any]:
        moved = rows.map(lambda i: i if isinstance(i, tuple) else (i, 0))
        moved = moved.map(lambda token: (token[0], token[1] + 1)).shuffle()
        return (
            moved.filter(lambda token: token[1] < 3),
            moved.filter(lambda token: token[1] >= 3),
        )

    tokens.loop(lap).limit(ENOUGH).for_each(print, name="enough")

    def check(rows: Rows) -> None:
        assert len({i for i, _ in rows["enough"]}) == len(rows["enough"]) == ENOUGH
        assert {laps for _, laps in rows["enough"]} == {3}

    return Case(flow, check)


def ticking() -> Case:
    """Need no more of tokens that go round for ever, and leave a trace in every lap."""
    flow = ms.Flow("ticking", buffer=ms.fixed(1))
    tokens = flow.from_parallel(lambda rank, size: range(rank, 3, size))

    def lap(rows: Any) -> tuple[Any, Any]:
        moved = rows.map(lambda i: i + 3).shuffle()
        return moved, moved

    tokens.loop(lap).limit(ENOUGH).for_each(print, name="ticks")

    def check(rows: Rows) -> None:
        assert len(set(rows["ticks"])) == len(rows["ticks"]) == ENOUGH

    return Case(flow, check)


class Savings(ms.StatefulFunction[int, tuple[int, int], Any]):
    """Keeps what it gets until there is no more, and passes it on then."""

    saved = ms.ListState[tuple[int, int]]()

    def on_record(self, key: int, value: tuple[int, int]) -> Iterator[Any]:
        del key
        amount, laps = value
        if laps:
            self.saved.append(value)
        else:
            yield amount

    def on_end(self, key: int) -> Iterator[Any]:
        del key
        yield from ((amount, laps - 1) for amount, laps in self.saved.get())


def saved() -> Case:
    """Send rows round that follow from the end of the input, again and again."""
    flow = ms.Flow("saved")
    amounts = flow.from_parallel(spread).map(lambda i: (i, i % 4))

    def lap(rows: Any) -> tuple[Any, Any]:
        keyed = rows.key_by(lambda row: sum(row) % ACCOUNTS)
        made = keyed.process(Savings()).drop_key()
        return (
            made.filter(lambda row: isinstance(row, tuple)),
            made.filter(lambda row: isinstance(row, int)),
        )

    amounts.loop(lap).for_each(print, name="saved")
    return Case(flow, lambda rows: same(rows["saved"], list(range(COUNT))))


LOOP_CASES = (
    ring,
    relay,
    bank,
    iterated,
    cycled,
    components,
    shortest,
    solved,
    enough,
    ticking,
    saved,
    *LOOP_JOIN_CASES,
    *LATE_SIDE_CASES,
)
