"""Good rows are those of a plain program that leaves the poison out, come what may."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples, is_exhaustive

import millstream as ms
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LETTERS_MAX = 10_000
SOUND, BROKEN = -1, -2
"""What state says at the end: whether the same records have changed all of it."""
COUNT = 300


class Changing(ms.StatefulFunction[int, int, int]):
    """Adds up, and raises on some values after it has added them."""

    total: ms.ValueState[int] = ms.ValueState(default=0)
    seen: ms.ListState[int] = ms.ListState()

    def __init__(self, poison: frozenset[int]) -> None:
        self.poison = poison

    def on_record(self, key: int, value: int) -> Iterator[int]:
        self.total.update(self.total.get() + value)
        self.seen.append(value)
        if value in self.poison:
            msg = f"poison {value}"
            raise KeyError(msg)
        if not value % 11:
            self.total.clear()
            self.seen.clear()
        yield value

    def on_end(self, key: int) -> Iterator[int]:
        yield SOUND if self.total.get() == sum(self.seen) else BROKEN


def raising(poison: frozenset[int]) -> Callable[[int], int]:
    def function(value: int) -> int:
        if value in poison:
            msg = f"poison {value}"
            raise ValueError(msg)
        return value

    return function


def poisoned_flow(
    numbers: list[int], first: frozenset[int], second: frozenset[int]
) -> ms.Flow:
    """Build two functions that raise, one before rows move and one with state."""
    flow = ms.Flow("poisoned", buffer=ms.adaptive(7, "50ms"))
    checked = flow.from_iterable(numbers).map(raising(first)).filter(lambda n: n >= 0)
    kept = checked.key_by(lambda n: n % 3).process(Changing(second))
    kept.collect(name="kept")
    kept.unkey().group_by(lambda pair: pair[0]).count().collect(name="counts")
    letters = flow.dead_letters(max_dead_letters=LETTERS_MAX)
    letters.map(lambda letter: (letter.operator, letter.record)).collect(name="letters")
    return flow


def expected(
    numbers: list[int], first: frozenset[int], second: frozenset[int]
) -> dict[str, Counter[Any]]:
    """Do the same in plain Python, over the good numbers alone."""
    checked = [n for n in numbers if n not in first and n >= 0]
    good = [n for n in checked if n not in second]
    kept = Counter((n % 3, n) for n in good)
    letters: Counter[Any] = Counter(("map", n) for n in numbers if n in first)
    letters.update(("process", (n % 3, n)) for n in checked if n in second)
    return {"kept": kept, "letters": letters}


def check_rows(rows: dict[str, list[Any]], oracle: dict[str, Counter[Any]]) -> None:
    """Compare with the plain program."""
    kept = rows["kept"]
    assert Counter(rows["letters"]) == oracle["letters"]
    assert Counter(pair for pair in kept if pair[1] >= 0) == oracle["kept"]
    assert {value for _, value in kept if value < 0} <= {SOUND}
    assert sum(n for _, n in rows["counts"]) == len(kept)


numbers = st.lists(st.integers(-5, 40), max_size=120)
poison = st.frozensets(st.integers(-5, 40), max_size=20)


@given(numbers, poison, poison, st.sampled_from([1, 2, 3]), st.integers(1, 50))
@examples(0.4)
def test_good_rows_are_those_of_a_program_without_the_poison(
    values: list[int],
    first: frozenset[int],
    second: frozenset[int],
    workers: int,
    batch_rows: int,
) -> None:
    """However rows are cut into batches, and however many of a batch are poison."""
    flow = poisoned_flow(values, first, second)
    job = flow.run(on="local", workers=workers, source_batch_rows=batch_rows)

    rows = {name: job.result().get(name, []) for name in ("kept", "counts", "letters")}
    check_rows(rows, expected(values, first, second))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_letter_comes_once_whatever_crashes(workers: int) -> None:
    """Snapshots have letters, their number and the state from before them."""
    values = [n % 41 for n in range(COUNT)]
    first, second = frozenset({3, 17}), frozenset({5, 22, 33})
    oracle = expected(values, first, second)

    report = simulate(
        poisoned_flow(values, first, second),
        seeds=15 if is_exhaustive() else 5,
        workers=workers,
        snapshots=True,
        check=lambda rows: check_rows(rows, oracle),
        snapshot_every_ms=20,
        source_batch_rows=20,
    )

    assert report.outcome_counts["succeeded"] >= len(report.outcomes) // 3


@pytest.mark.slow
def test_the_budget_holds_over_recoveries() -> None:
    """Letters counted before a snapshot are counted after it, and not twice."""
    values = [n % 41 for n in range(COUNT)]
    poison = frozenset({3, 17})
    letters = sum(n in poison for n in values)

    flow = ms.Flow("budget")
    flow.from_iterable(values).map(raising(poison)).collect(name="good")
    flow.dead_letters(max_dead_letters=letters).map(lambda le: le.record).collect(
        name="letters"
    )

    report = simulate(
        flow, seeds=15, snapshots=True, snapshot_every_ms=20, source_batch_rows=20
    )

    assert report.outcome_counts["succeeded"] >= 5
