"""The queries of NEXMark give what their oracles give: at any width, whatever crashes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from examples.nexmark.events import Auction, Bid, Person
from examples.nexmark.market import Market
from examples.nexmark.queries import ORACLES, QUERIES, timed
from tests.support.examples import is_exhaustive, mostly_slow

import millstream as ms
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples" / "nexmark").glob("*.py"))
LINES_MAX = 75

MARKET = Market(2_500)
SMALL, SMALLER = Market(800), Market(400)
SEEDS = range(100, 112 if is_exhaustive() else 101)
STATEFUL = ("q3", "q4", "q5", "q7", "q8", "q9", "q11")
BY_THE_CLOCK = ("q12",)


def answer(name: str, market: Market) -> Counter[Any]:
    """Return what the oracle says."""
    return rows_of(name, ORACLES[name](list(market(0, 1))))


def rows_of(name: str, rows: list[Any]) -> Counter[Any]:
    """Return rows as a multiset; where they depend on the clock, their sums by key."""
    if name not in BY_THE_CLOCK:
        return Counter(rows)
    sums: Counter[Any] = Counter()
    for key, count in rows:
        sums[key] += count
    return sums


def flow_of(name: str, market: Market) -> tuple[ms.Flow, ms.ResultHandle[list[Any]]]:
    """Return a flow with one query, and its result."""
    flow = ms.Flow(name)
    return flow, QUERIES[name](timed(flow, market)).collect(name=name)


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_its_oracle_gives(name: str, workers: int) -> None:
    """Whoever reads which events, and whoever counts them."""
    flow, found = flow_of(name, MARKET)

    flow.run(on="local", workers=workers)

    assert rows_of(name, found.result()) == answer(name, MARKET)


@pytest.mark.parametrize("name", STATEFUL)
def test_query_gives_the_same_with_state_on_disk(name: str, tmp_path: Path) -> None:
    """State in RocksDB is read back as it was written."""
    flow, found = flow_of(name, SMALL)

    flow.run(on="local", workers=2, state=tmp_path, state_backend="rocksdb")

    assert rows_of(name, found.result()) == answer(name, SMALL)


def test_every_query_has_something_to_say() -> None:
    """An oracle without rows would be met by an operator that does nothing."""
    assert all(answer(name, SMALLER) for name in STATEFUL)
    assert all(answer(name, MARKET) for name in QUERIES)


def checked(name: str, market: Market) -> Callable[[dict[str, list[Any]]], None]:
    """Return a check of what a simulated job has written."""
    expected = answer(name, market)

    def check(rows: dict[str, list[Any]]) -> None:
        assert rows_of(name, rows[name]) == expected

    return check


@pytest.mark.parametrize("name", STATEFUL)
def test_crashes_change_nothing(name: str) -> None:
    """Event time makes the rows of a job the same however often it has to go back."""
    flow, _ = flow_of(name, SMALLER)

    simulate(flow, seeds=2, snapshots=True, check=checked(name, SMALLER))


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEFUL)
def test_many_crashes_change_nothing(name: str) -> None:
    """The same with more seeds and events."""
    flow, _ = flow_of(name, SMALL)

    simulate(flow, seeds=SEEDS, snapshots=True, check=checked(name, SMALL))


@pytest.mark.slow
def test_clock_windows_count_every_bid_once_after_crashes() -> None:
    """Which window a bid is in may change when a job goes back; that it is in one, not."""
    flow, _ = flow_of("q12", SMALL)

    simulate(flow, seeds=SEEDS, snapshots=True, check=checked("q12", SMALL))


@pytest.mark.spark
@pytest.mark.parametrize("name", ["q3", "q5", "q7", "q9", "q11"])
def test_query_gives_the_same_on_spark(name: str, spark: SparkSession) -> None:
    """Events and timers of other processes, over real sockets."""
    flow, found = flow_of(name, MARKET)

    flow.run(spark=spark, workers=2)

    assert rows_of(name, found.result()) == answer(name, MARKET)


def test_market_has_the_shares_of_nexmark() -> None:
    """One person to three auctions to 46 bids."""
    kinds = Counter(type(event) for event in Market(5_000)(0, 1))

    assert kinds == {Person: 100, Auction: 300, Bid: 4_600}


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_market_is_the_same_for_any_number_of_readers(size: int) -> None:
    """Each of them makes its own part."""
    parts = [event for rank in range(size) for event in MARKET(rank, size)]

    assert Counter(parts) == Counter(MARKET(0, 1))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_market_is_out_of_order_but_not_more_than_it_says(size: int) -> None:
    """Otherwise events would be late, and the oracles wrong."""
    behind = 0
    for rank in range(size):
        newest = 0
        for event in MARKET(rank, size):
            behind = max(behind, newest - event.at)
            newest = max(newest, event.at)

    assert 0 < behind < MARKET.out_of_order_ms


def test_other_seed_makes_another_market() -> None:
    """What is random depends on the seed."""
    assert list(Market(100, seed=1)(0, 1)) != list(Market(100, seed=2)(0, 1))


def test_module_runs_a_query_and_says_whether_it_was_right() -> None:
    """What the docstring of the package tells the reader to do."""
    command = [sys.executable, "-m", "examples.nexmark", "q5", "1000"]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert "rows; as expected: True" in ended.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_short(path: Path) -> None:
    """Like every example, each file has one idea."""
    assert len(path.read_text().splitlines()) <= LINES_MAX
