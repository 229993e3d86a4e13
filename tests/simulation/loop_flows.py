"""Flows with loops for jobs that take snapshots, each with what plain Python says.

`ring`, `relay` and `bank` go round a parallel loop that shuffles: tokens that must neither
vanish nor double, and money that is nowhere but in accounts and on its way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import polars as pl
from tests.simulation.flows import Case, same

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    balances: dict[int, int] = defaultdict(int)
    kept = []
    for i in range(COUNT):
        account, amount, laps = i % ACCOUNTS, i + 1, i % LAPS
        while laps:
            account, laps = (account * 3 + laps) % ACCOUNTS, laps - 1
        balances[account] += amount
        kept.append(("kept", amount))
    expected = kept + [("balance", key, balance) for key, balance in balances.items()]
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


LOOP_CASES = (ring, relay, bank, iterated, cycled, components, shortest)
