"""Records that make a function raise leave the flow as dead letters, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms
from millstream.errors import OperatorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])
BAD = frozenset({0, 7, 8, 350, 999})
ROWS = range(1000)
GOOD = [n for n in ROWS if n not in BAD]


def picky(number: int) -> int:
    if number in BAD:
        msg = f"no {number}"
        raise ValueError(msg)
    return number


def picky_list(numbers: list[int]) -> list[int]:
    return [picky(number) for number in numbers]


def picky_items(number: int) -> Iterator[int]:
    """Yield something before raising."""
    yield number
    yield picky(number)


class Remembering(ms.StatefulFunction[int, int, list[int]]):
    """Changes the state of the key, in place and anew, before it raises."""

    seen: ms.ListState[int] = ms.ListState()
    last: ms.ValueState[int] = ms.ValueState(default=-1)

    def on_record(self, key: int, value: int) -> Iterator[list[int]]:
        before = self.last.get()
        self.seen.append(value)
        self.last.update(value)
        picky(value)
        yield [before, value]

    def on_end(self, key: int) -> Iterator[list[int]]:
        yield [*self.seen]


class Numbered(ms.OperatorState):
    """Counts the rows before it raises."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, row: int) -> int:
        self.count += 1
        picky(row)
        return self.count

    def capture(self) -> int:
        return self.count

    def restore(self, value: int) -> None:
        self.count = value


def appended(rows: list[int], row: int) -> list[int]:
    rows.append(row)
    picky(row)
    return rows


def run(
    make: Callable[[ms.Stream[int]], ms.ResultHandle[Any]],
    *,
    workers: int = 1,
    rows: Iterable[int] = ROWS,
) -> tuple[Any, list[ms.DeadLetter]]:
    """Run a flow over numbers; return its result and its dead letters."""
    flow = ms.Flow("letters", buffer=ms.adaptive(64, "50ms"))
    result = make(flow.from_iterable(rows))
    letters = flow.dead_letters(max_dead_letters=100).collect()
    flow.run(on="local", workers=workers, source_batch_rows=90)
    return result.result(), letters.result()


def records(letters: list[ms.DeadLetter]) -> list[Any]:
    return sorted(letter.record for letter in letters)


@WORKERS
@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows.map(picky).collect(sorted),
        lambda rows: rows.filter(lambda n: picky(n) >= 0).collect(sorted),
        lambda rows: rows.filter_map(picky).collect(sorted),
        lambda rows: rows.inspect(picky).collect(sorted),
        lambda rows: rows.map(lambda n: n + 1).map(lambda n: picky(n - 1)).collect(sorted),
        lambda rows: rows.map_batches(picky_list).collect(sorted),
        lambda rows: rows.group_by(picky).count().collect(lambda p: sorted(dict(p))),
        lambda rows: rows.sort_by(picky).collect(),
        lambda rows: rows.sort_by(picky).limit(2000).collect(),
        lambda rows: rows.repartition_by(picky).collect(sorted),
        lambda rows: rows.fold([], appended),
    ],
    ids=[
        "map", "filter", "filter_map", "inspect", "two maps", "map_batches", "group_by",
        "sort_by", "top", "repartition_by", "fold",
    ],
)  # fmt: skip
def test_every_good_record_passes_and_every_bad_one_is_a_letter(
    make: Callable[[ms.Stream[int]], ms.ResultHandle[Any]], workers: int
) -> None:
    """Whatever function raises, and however many records of a batch it raises on."""
    good, letters = run(make, workers=workers)

    assert sorted(good) == GOOD
    assert records(letters) == sorted(BAD)


@WORKERS
def test_a_letter_has_changed_no_state(workers: int) -> None:
    """What a function did to the state of its key before it raised is taken back."""

    def make(rows: ms.Stream[int]) -> ms.ResultHandle[Any]:
        return rows.key_by(lambda n: n % 5).process(Remembering()).collect()

    made, letters = run(make, workers=workers)

    expected = Counter()  # type: Counter[tuple[int, tuple[int, ...]]]
    for key in range(5):
        own = [n for n in GOOD if n % 5 == key]
        pairs = zip([-1, *own], own, strict=False)
        expected.update((key, pair) for pair in pairs)
        expected[key, tuple(own)] += 1
    assert Counter((key, tuple(item)) for key, item in made) == expected
    assert records(letters) == sorted((n % 5, n) for n in BAD)


@WORKERS
def test_accumulators_that_change_in_place_are_taken_back(workers: int) -> None:
    """An aggregate may have taken the record in before it raised."""

    def make(rows: ms.Stream[int]) -> ms.ResultHandle[Any]:
        groups = rows.group_by(lambda n: n % 5)
        empty: list[int] = []
        return groups.fold(empty, appended, merge=lambda a, b: a + b).collect(dict)

    made, letters = run(make, workers=workers)

    assert made == {key: [n for n in GOOD if n % 5 == key] for key in range(5)}
    assert records(letters) == sorted((n % 5, n) for n in BAD)


def test_a_users_own_state_is_taken_back() -> None:
    """An `OperatorState` is asked for its value before every batch."""
    made, _ = run(lambda rows: rows.map(Numbered()).collect())

    assert made == list(range(1, len(GOOD) + 1))


def test_items_of_a_flat_map_are_records_of_their_own() -> None:
    """One bad word does not take its whole line along."""
    flow = ms.Flow("words")
    lines = flow.from_iterable(["1 2", "3 x 5", "y"])
    numbers = lines.flat_map(str.split).map(int).collect()
    letters = flow.dead_letters(max_dead_letters=2).collect()
    flow.run(on="local")

    assert numbers.result() == [1, 2, 3, 5]
    assert records(letters.result()) == ["x", "y"]


def test_a_flat_map_that_raises_halfway_passes_nothing_on() -> None:
    """A record is a letter, or its rows are there: never both."""
    made, letters = run(lambda rows: rows.flat_map(picky_items).collect())

    assert made == [n for n in GOOD for _ in range(2)]
    assert records(letters) == sorted(BAD)


def test_functions_for_each_row_are_called_once() -> None:
    """What they do outside of the flow cannot be taken back."""
    calls: list[int] = []
    flow = ms.Flow("calls")

    def called(number: int) -> None:
        calls.append(number)
        picky(number)

    with pytest.warns(ms.LostChangesWarning):
        flow.from_iterable(ROWS).for_each(called)
    letters = flow.dead_letters(max_dead_letters=10).collect()
    flow.run(on="local")

    assert calls == list(ROWS)
    assert records(letters.result()) == sorted(BAD)


@WORKERS
def test_a_key_that_cannot_be_routed_is_a_letter(workers: int) -> None:
    """On one worker as on many."""

    def make(rows: ms.Stream[int]) -> ms.ResultHandle[Any]:
        keyed = rows.key_by(lambda n: [n] if n in BAD else n)
        return keyed.scan(lambda total, n: total + n).drop_key().collect(sorted)

    made, letters = run(make, workers=workers)

    assert made == GOOD
    assert sorted(n for _, n in (letter.record for letter in letters)) == sorted(BAD)


def test_rows_of_frames_are_found_too() -> None:
    """A query or a function fails for a whole frame; its rows are tried apart."""
    flow = ms.Flow("frames")
    texts = flow.from_iterable([("1",), ("two",), ("3",), ("four",)])
    frame = texts.to_frame({"text": pl.String})
    whole = frame.with_columns(pl.col("text").str.to_integer(strict=True))
    halves = frame.map_batches(
        lambda f: f.with_columns(text=pl.col("text").cast(pl.Int64) * 2),
        schema={"text": pl.Int64},
    )
    numbers, doubled = whole.collect(), halves.collect()
    letters = flow.dead_letters(max_dead_letters=4).collect()
    flow.run(on="local")

    assert sorted(numbers.result()["text"]) == [1, 3]
    assert sorted(doubled.result()["text"]) == [2, 6]
    found = Counter(letter.record["text"] for letter in letters.result())
    assert found == {"two": 2, "four": 2}


def test_a_letter_says_what_where_and_why() -> None:
    """Enough to find the record, mend the function, and send the record again."""
    _, (first, *_) = run(lambda rows: rows.map(picky).collect())

    assert first.record == 0
    assert first.operator == "map"
    assert first.cause.startswith("ValueError: no 0 (test_dead_letters.py:")
    assert first.position == "record 0 from task 0 of stage 0"


@WORKERS
def test_one_letter_too_many_fails_the_job_with_its_cause(workers: int) -> None:
    """The budget is for the whole job, not for a task."""
    flow = ms.Flow("budget")
    flow.from_iterable(ROWS).map(picky).collect()
    flow.dead_letters(max_dead_letters=len(BAD) - 1)

    with pytest.raises(
        OperatorError, match=r"more than max_dead_letters=4 .* ValueError: no"
    ):
        flow.run(on="local", workers=workers)


def test_letters_come_once_although_the_job_is_started_again(tmp_path: Path) -> None:
    """Letters from before the last snapshot are there, and the others come anew."""
    flow = ms.Flow("restarted")
    died = tmp_path / "died"

    def dying(number: int) -> int:
        if number == 900 and not died.exists():
            died.touch()
            raise KeyboardInterrupt
        return picky(number)

    made = flow.from_iterable(ROWS).map(dying).collect()
    letters = flow.dead_letters(max_dead_letters=len(BAD)).collect()
    job = flow.start(
        on="local", state=tmp_path / "state", snapshot_every="1ms", source_batch_rows=10
    )
    with pytest.raises(KeyboardInterrupt):
        job.wait()
    flow.run(on="local", state=tmp_path / "state")

    assert sorted(made.result()) == GOOD
    assert records(letters.result()) == sorted(BAD)


def test_letters_are_a_stream_like_any_other() -> None:
    """They may be mapped, written and merged; what fails there fails the job."""
    flow = ms.Flow("letters")
    good = flow.from_iterable(ROWS).map(picky)
    letters = flow.dead_letters(max_dead_letters=100)
    merged = good.merge(letters.map(lambda letter: -letter.record)).collect(sorted)
    # Verbs that come later belong to the flow, too.
    halves = good.map(lambda n: 1000 // n).collect()
    flow.run(on="local", workers=2)
    assert merged.result() == sorted([*GOOD, *(-n for n in BAD)])
    assert len(halves.result()) == len(GOOD)

    letters.map(lambda letter: 1 // 0).collect()
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        flow.run(on="local", workers=2)


def test_a_flow_without_functions_has_no_letters() -> None:
    """The stream of letters is there, and empty."""
    flow = ms.Flow("none")
    rows = flow.from_iterable([1]).collect()
    letters = flow.dead_letters(max_dead_letters=1).collect()
    flow.run(on="local", workers=2)

    assert (rows.result(), letters.result()) == ([1], [])


def test_what_is_nobodys_record_still_fails_the_job() -> None:
    """Memory that runs out is not the fault of the record that was there."""
    flow = ms.Flow("memory")

    def exhausting(number: int) -> int:
        raise MemoryError

    flow.from_iterable([1]).map(exhausting).collect()
    flow.dead_letters(max_dead_letters=10)

    with pytest.raises(OperatorError, match="MemoryError"):
        flow.run(on="local")


def test_a_flow_has_one_stream_of_letters() -> None:
    """A second would have to share the records with the first."""
    flow = ms.Flow("twice")
    flow.dead_letters(max_dead_letters=1)

    with pytest.raises(UsageError, match=r"is there already, at test_dead_letters.py"):
        flow.dead_letters(max_dead_letters=1)
    with pytest.raises(
        UsageError, match="whole number of at least 1 as max_dead_letters"
    ):
        ms.Flow("none").dead_letters(max_dead_letters=0)
