"""`sort_by`, `limit` and `zip` by hand."""

from __future__ import annotations

import os

import pytest
from tests.support.making import nodes, operators

from millstream.config import Config, configured
from millstream.operators.rows.ordering import SortOperator, ZipOperator
from millstream.plan import nodes as specs


@pytest.mark.parametrize("is_over", [True, False])
def test_runs_beyond_the_memory_go_to_disk_and_are_closed(*, is_over: bool) -> None:
    """A sort that is over, or closed before, leaves no file open."""
    config = configured(Config(), {"sort_memory_rows": 2})
    (operator,) = operators([specs.SortBy(lambda i: i)], config)
    assert isinstance(operator, SortOperator)

    for batch in ([5, 4], [3, 2], [1]):
        operator.process(batch)
    numbers = [piece.file.number for run in operator._runs for piece in run]
    if is_over:
        assert [row for batch in operator.finish() for row in batch] == [1, 2, 3, 4, 5]
    else:
        operator.close()

    assert len(numbers) == 2
    for number in numbers:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)


def test_limited_sort_keeps_no_more_than_it_must() -> None:
    """Its memory follows the limit, not the input."""
    (operator,) = operators([specs.SortBy(lambda i: i, limit=3)])
    assert isinstance(operator, SortOperator)
    for start in range(0, 100_000, 1_000):
        operator.process(list(range(start, start + 1_000)))

    assert len(operator._rows) <= 3_000
    assert [row for batch in operator.finish() for row in batch] == [0, 1, 2]


def test_zip_refuses_to_wait_for_ever() -> None:
    """A side that is too far ahead is an error with a way out."""
    config = configured(Config(), {"zip_ahead_rows_max": 2})
    (operator,) = operators([specs.Zip()], config)
    operator.process([1, 2], 0)

    with pytest.raises(RuntimeError, match=r"3 rows ahead .* 'zip_ahead_rows_max'"):
        operator.process([3], 0)


def test_zip_ahead_counts_only_rows_without_a_partner() -> None:
    """Long streams at the same pace never wait for long."""
    config = configured(Config(), {"zip_ahead_rows_max": 1})
    (operator,) = operators([specs.Zip()], config)

    pairs = []
    for number in range(100):
        pairs += operator.process([number], 0)
        pairs += operator.process([-number], 1)

    assert len(pairs) == 100


def test_zip_is_satisfied_when_a_side_that_ended_has_no_row_left() -> None:
    """An endless side is not read for ever."""
    zipped = ZipOperator(tuple(nodes([specs.Zip()])), 10)
    zipped.process([1, 2], 0)
    zipped.on_input_end(0)

    assert not zipped.is_satisfied
    assert zipped.process(["a", "b", "c"], 1) == [(1, "a"), (2, "b")]
    assert zipped.is_satisfied
