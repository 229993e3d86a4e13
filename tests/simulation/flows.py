"""Flows for the swarm, each with what plain Python says about its rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Rows = dict[str, list[Any]]

LINES = [f"w{i % 7} W{i % 3} w{i * i % 11}" for i in range(80)]
WORDS = Counter(word.lower() for line in LINES for word in line.split())
NUMBERS = range(150)


@dataclass(frozen=True, slots=True)
class Case:
    """A flow, the check of its rows (None: those of one worker), and its settings.

    `fails` tells that a function of the flow raises.
    """

    flow: ms.Flow
    check: Callable[[Rows], object] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    fails: bool = False


def same(found: list[Any], expected: list[Any]) -> None:
    assert sorted(found) == sorted(expected)


def word_count() -> Case:
    flow = ms.Flow("word-count")
    words = flow.from_iterable(LINES).flat_map(str.split)
    words.group_by(str.lower).count().collect(name="counts")
    return Case(flow, lambda rows: same(rows["counts"], list(WORDS.items())))


def keyed_scan() -> Case:
    """One source, one key at one task: the running sums of a key come in order."""
    flow = ms.Flow("keyed-scan")
    pairs = flow.from_iterable(NUMBERS).max_parallelism(1)
    sums = pairs.key_by(lambda i: i % 5).group_by(lambda i: i % 5)
    sums.scan(lambda total, i: total + i).collect(name="sums")

    def check(rows: Rows) -> None:
        for key in range(5):
            expected = list(accumulate(i for i in NUMBERS if i % 5 == key))
            assert [total for k, total in rows["sums"] if k == key] == expected

    return Case(flow, check)


def diamond() -> Case:
    flow = ms.Flow("diamond")
    left, right = flow.from_iterable(NUMBERS).shuffle().split(2)
    evens = left.filter(lambda i: i % 2 == 0)
    odds = right.filter(lambda i: i % 2 == 1).map(lambda i: -i)
    evens.merge(odds).collect(name="merged")
    numbers = flow.from_iterable(NUMBERS, name="other")
    numbers.zip(numbers.map(lambda i: i * i)).collect(name="zipped")

    def check(rows: Rows) -> None:
        same(rows["merged"], [-i if i % 2 else i for i in NUMBERS])
        same([a for a, _ in rows["zipped"]], list(NUMBERS))
        same([b for _, b in rows["zipped"]], [i * i for i in NUMBERS])

    return Case(flow, check)


def endless() -> Case:
    flow = ms.Flow("endless")
    numbers = flow.from_iterable(lambda: count())  # noqa: PLW0108 - no signature
    numbers.map(lambda i: 2 * i).limit(40).collect(name="some")

    def check(rows: Rows) -> None:
        assert len(set(rows["some"])) == 40
        assert all(i % 2 == 0 for i in rows["some"])

    return Case(flow, check)


def top() -> Case:
    flow = ms.Flow("top")
    words = flow.from_iterable(LINES).flat_map(str.split).group_by(str.lower).count()
    ranked = words.sort_by(lambda pair: (-pair[1], pair[0]))
    ranked.limit(4).collect(name="top")
    best = sorted(WORDS.items(), key=lambda pair: (-pair[1], pair[0]))[:4]

    def check(rows: Rows) -> None:
        assert rows["top"] == best

    return Case(flow, check)


def ordered() -> Case:
    flow = ms.Flow("ordered")
    numbers = flow.from_parallel(lambda rank, size: range(rank, 200, size))
    numbers.sort_by(lambda i: (i % 10, -i)).collect(name="ordered")
    expected = sorted(range(200), key=lambda i: (i % 10, -i))

    def check(rows: Rows) -> None:
        assert rows["ordered"] == expected

    return Case(flow, check)


def broadcast() -> Case:
    flow = ms.Flow("broadcast")
    flow.from_iterable(NUMBERS).broadcast().map(lambda i: i % 9).collect()
    return Case(flow)


def repartitioned() -> Case:
    flow = ms.Flow("repartitioned")
    flow.from_parallel(lambda rank, size: range(rank, 120, size)).repartition_by(
        lambda i: i % 3
    ).map_batches(lambda rows: [-row for row in rows]).for_each(print, name="printed")
    return Case(flow, lambda rows: same(rows["printed"], [-i for i in range(120)]))


def narrow() -> Case:
    flow = ms.Flow("narrow")
    numbers = flow.from_parallel(lambda rank, size: range(rank, 100, size))
    numbers.max_parallelism(2).map(lambda i: i + 1).shuffle().collect(name="shifted")
    numbers.sum(name="total")

    def check(rows: Rows) -> None:
        same(rows["shifted"], list(range(1, 101)))
        assert rows["total.result"] == [sum(range(100))]

    return Case(flow, check)


def fail_on_77(number: int) -> int:
    if number == 77:
        msg = "seventy-seven"
        raise ValueError(msg)
    return number


def failing() -> Case:
    flow = ms.Flow("failing")
    numbers = flow.from_iterable(NUMBERS).shuffle().map(fail_on_77, name="fragile")
    numbers.group_by(lambda i: i % 4).sum().collect()
    return Case(flow, fails=True)


def deduplicated() -> Case:
    flow = ms.Flow("deduplicated")
    flow.from_iterable(NUMBERS).map(lambda i: i % 13).unique().collect(name="distinct")
    return Case(flow, lambda rows: same(rows["distinct"], list(range(13))))


CASES = (
    word_count,
    keyed_scan,
    diamond,
    endless,
    top,
    ordered,
    broadcast,
    repartitioned,
    narrow,
    failing,
    deduplicated,
)


def cases() -> Iterator[Case]:
    """Make all of them."""
    return (make() for make in CASES)
