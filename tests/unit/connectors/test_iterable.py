"""IterableSource and ParallelSource: what they accept and how they read it."""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING, Any

import pytest

from millstream.config import Config
from millstream.connectors.iterable import (
    IterableSource,
    ParallelSource,
    _IteratorReader,
)
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.connectors.base import Source, SourceReader

MILLISECOND_NS = 1_000_000


class Squares:
    """Can be iterated again and again; each time from the start."""

    def __iter__(self) -> Iterator[int]:
        return (number * number for number in range(10))


def opened(source: Source[Any], offset: int = 0, split: int = 0) -> SourceReader[Any]:
    return source.open(source.splits(3)[split], offset, Config())


def all_rows(reader: SourceReader[Any], rows: int = 4) -> list[Any]:
    result: list[Any] = []
    while (batch := reader.read(rows)) is not None:
        result += batch
    return result


@pytest.mark.parametrize(
    "items",
    [
        [n * n for n in range(10)],
        tuple(n * n for n in range(10)),
        Squares(),
        dict.fromkeys(n * n for n in range(10)),
        lambda: (n * n for n in range(10)),
        lambda: [n * n for n in range(10)],
    ],
)
@pytest.mark.parametrize("offset", [0, 1, 7, 10])
def test_a_reader_begins_at_its_offset(items: Any, offset: int) -> None:
    """The offset is the number of rows that were returned before."""
    reader = opened(IterableSource(items), offset)

    assert reader.offset == offset
    assert all_rows(reader) == [n * n for n in range(offset, 10)]
    assert reader.offset == 10


def test_a_flow_of_one_iterable_has_one_split_that_one_task_reads() -> None:
    """An iterable cannot be cut."""
    source = IterableSource([1])

    assert len(source.splits(8)) == 1
    assert not source.is_parallel


@pytest.mark.parametrize(
    ("items", "kind"), [(iter([1]), "list_iterator"), ((n for n in [1]), "generator")]
)
def test_what_can_be_read_only_once_is_refused(items: Any, kind: str) -> None:
    """A flow must be able to read its input again after a failure."""
    with pytest.raises(UsageError, match=rf"got a {kind}, .* only once; pass a list"):
        IterableSource(items)


@pytest.mark.parametrize(
    ("items", "message"),
    [(7, "an iterable or a function .* got a int"), (lambda a: [a], "parameters")],
)
def test_what_cannot_be_read_at_all_is_refused(items: Any, message: str) -> None:
    """The mistake shows while the flow is being built."""
    with pytest.raises(UsageError, match=message):
        IterableSource(items)


def test_a_set_is_read_in_the_same_order_in_every_process() -> None:
    """Another process iterates the same set in another order, and may go on with it."""
    source = IterableSource({"d", "b", "c", "a"})

    assert all_rows(opened(source)) == ["a", "b", "c", "d"]


def test_a_function_that_returns_no_iterable_is_named() -> None:
    """The error says what came back and from where."""
    wrong: Any = lambda: 7  # noqa: E731

    with pytest.raises(TypeError, match="given to from_iterable returned a int"):
        opened(IterableSource(wrong))


def test_a_huge_range_is_opened_far_in_without_iterating() -> None:
    """Skipping a quintillion rows one by one would never end."""
    reader = opened(IterableSource(range(10**19)), 10**18)

    assert reader.read(3) == [10**18, 10**18 + 1, 10**18 + 2]


def test_an_endless_iterable_is_read_batch_by_batch() -> None:
    """A reader takes no more rows than it returns."""
    reader = opened(IterableSource(count))
    batches = [reader.read(64) or [] for _ in range(20)]

    assert list(chain(*batches)) == list(range(reader.offset))
    assert all(1 <= len(batch) <= 64 for batch in batches)


def test_an_iterable_that_became_shorter_is_an_error_not_an_early_end() -> None:
    """Rows would be lost silently if the skipped ones were other rows."""
    reader = opened(IterableSource(lambda: iter(range(5))), 8)

    with pytest.raises(ValueError, match="gave 8 rows before ended 3 rows earlier"):
        all_rows(reader)


def test_each_rank_reads_what_the_function_makes_for_it() -> None:
    """The function learns its rank and the number of ranks."""

    def numbers(rank: int, size: int) -> Iterable[int]:
        yield from range(rank, 10, size)

    source = ParallelSource(numbers)
    rows = [all_rows(opened(source, split=rank)) for rank in range(3)]

    assert source.is_parallel
    assert rows == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert all_rows(opened(source, offset=2, split=0)) == [6, 9]


@pytest.mark.parametrize("function", [lambda rank: [rank], [1, 2]])
def test_a_parallel_source_takes_a_function_of_rank_and_size(function: Any) -> None:
    """The mistake shows while the flow is being built."""
    with pytest.raises(UsageError, match=r"function\(rank, size\)"):
        ParallelSource(function)


def test_chunks_of_a_fast_iterator_double_up_to_the_rows_asked_for() -> None:
    """Ten reads after the start the cost per read does not matter any more."""
    reader = _IteratorReader(iter(range(100)), 0, now_ns=lambda: 0)

    assert [len(reader.read(16) or []) for _ in range(7)] == [1, 2, 4, 8, 16, 16, 16]


def test_chunks_of_a_slow_iterator_shrink_to_one_row() -> None:
    """A worker that waits for a slow iterator serves nobody else meanwhile."""
    now_ns = 0

    def rows() -> Iterator[int]:
        nonlocal now_ns
        for number in range(100):
            now_ns += 0 if number < 15 else 2 * MILLISECOND_NS
            yield number

    reader = _IteratorReader(rows(), 0, now_ns=lambda: now_ns)

    assert [len(reader.read(1024) or []) for _ in range(10)] == [
        *(1, 2, 4, 8),
        *(16, 8, 4, 2, 1, 1),
    ]


def test_rows_before_an_error_are_returned_and_the_offset_names_the_failed_row() -> (
    None
):
    """Whoever reports the error can say which row it was."""

    def rows() -> Iterator[int]:
        yield from range(5)
        message = "row 5"
        raise LookupError(message)

    reader = opened(IterableSource(rows))
    seen = [reader.read(1024), reader.read(1024), reader.read(1024)]

    assert seen == [[0], [1, 2], [3, 4]]
    for _ in range(2):
        with pytest.raises(LookupError, match="row 5"):
            reader.read(1024)
        assert reader.offset == 5


def test_closing_a_reader_closes_its_generator() -> None:
    """A generator may hold a file or a connection."""
    closed = []

    def rows() -> Iterator[int]:
        try:
            yield from range(5)
        finally:
            closed.append(True)

    reader = opened(IterableSource(rows))
    reader.read(1)
    reader.close()

    assert closed == [True]
