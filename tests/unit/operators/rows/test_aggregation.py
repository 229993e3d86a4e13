"""Aggregations by hand: what a random test would hardly hit."""

from __future__ import annotations

import pytest
from tests.support.making import drained, operators

from millstream.config import Config, configured
from millstream.operators.failure import blame
from millstream.operators.rows.aggregation import CountCombineOperator
from millstream.plan import nodes as specs
from millstream.plan.aggregate import MISSING, Aggregate, builtin, fold


def test_sum_does_not_change_the_rows_it_adds() -> None:
    """Values that can be changed in place may be read by another branch too."""
    first, second = [1], [2]
    (operator,) = operators([specs.AggregateByKey(builtin("sum"), is_combined=True)])

    rows = drained(operator, [[("k", first), ("k", second)]])

    assert rows == [("k", [1, 2])]
    assert (first, second) == ([1], [2])


def test_combined_sum_does_not_change_the_rows_it_adds() -> None:
    """The same in front of the shuffle."""
    first = [1]
    (operator,) = operators([specs.Combine(builtin("sum"))])

    assert drained(operator, [[("k", first), ("k", [2])]]) == [("k", [1, 2])]
    assert first == [1]


def test_fold_gives_every_key_its_own_copy_of_the_initial_value() -> None:
    """A list that is appended to is not shared between keys."""

    def append(items: list[int], value: int) -> list[int]:
        items.append(value)
        return items

    initial: list[int] = []
    (operator,) = operators([specs.AggregateByKey(fold(initial, append))])

    rows = drained(operator, [[("a", 1), ("b", 2), ("a", 3)]])

    assert rows == [("a", [1, 3]), ("b", [2])]
    assert initial == []


def test_combiner_sends_its_parts_when_it_is_full() -> None:
    """Its memory is bounded by a number of keys."""
    config = configured(Config(), {"combine_keys_max": 2})
    (operator,) = operators([specs.Combine(builtin("count"))], config)

    assert operator.process([("a", 0)]) == []
    assert operator.process([("a", 0), ("b", 0)]) == [("a", 2), ("b", 1)]
    assert operator.flush() == []


def test_combiner_gives_what_it_holds_before_a_cut() -> None:
    """Rows are held back only to save work, never across a barrier."""
    (operator,) = operators([specs.Combine(builtin("max"))])
    operator.process([("a", 3), ("a", 5)])

    assert operator.flush() == [("a", 5)]
    assert list(operator.finish()) == [[]]


def test_results_leave_in_batches() -> None:
    """A million keys are not one batch."""
    (operator,) = operators([specs.AggregateByKey(builtin("count"))])
    operator.process([(key, 0) for key in range(3000)])

    assert [len(batch) for batch in operator.finish()] == [1024, 1024, 952]


def test_scan_sends_on_what_does_not_change_any_more() -> None:
    """An accumulator that is updated in place is copied for every row."""

    def append(items: list[int], value: int) -> list[int]:
        items.append(value)
        return items

    (operator,) = operators([specs.Scan(fold([], append))])

    rows = drained(operator, [[("k", 1), ("k", 2)], [("k", 3)]])

    assert rows == [("k", [1]), ("k", [1, 2]), ("k", [1, 2, 3])]


def test_key_that_cannot_be_a_key_blames_who_made_it() -> None:
    """Though it is the counter that could not take it."""
    (operator,) = operators(
        [specs.KeyBy(lambda i: [i]), specs.Combine(builtin("count"))]
    )
    assert isinstance(operator, CountCombineOperator)

    with pytest.raises(TypeError, match="a list cannot be a key") as raised:
        operator.process([1])

    found = blame(raised.value, operator, [1])
    assert (found.node.spec, found.row_text) == (operator.nodes[0].spec, "1")


def test_failing_aggregate_names_its_row() -> None:
    """The loop over the batch knows how far it came."""
    (operator,) = operators([specs.AggregateByKey(builtin("sum"))])
    rows = [("a", 1), ("b", 2), ("a", "x")]

    with pytest.raises(TypeError) as raised:
        operator.process(rows)

    found = blame(raised.value, operator, rows)
    assert found.row_index == 2
    assert found.row_text == "'x' of key 'a'"


def test_aggregate_of_ones_own_is_finished_once() -> None:
    """`finish` sees the merged accumulator, not the parts."""
    spread = Aggregate(
        "spread",
        first=lambda v: (v, v),
        update=lambda part, v: (min(part[0], v), max(part[1], v)),
        merge=lambda x, y: (min(x[0], y[0]), max(x[1], y[1])),
        finish=lambda part: part[1] - part[0],
    )
    (combiner,) = operators([specs.Combine(spread)])
    (merger,) = operators([specs.AggregateByKey(spread, is_combined=True)])

    parts = drained(combiner, [[("k", 5), ("k", 9)]])
    parts += drained(operators([specs.Combine(spread)])[0], [[("k", 1)]])

    assert drained(merger, [parts]) == [("k", 8)]


def test_missing_survives_pickling_as_itself() -> None:
    """It is compared by identity."""
    import pickle  # noqa: PLC0415 - only here

    assert pickle.loads(pickle.dumps(MISSING)) is MISSING
    assert repr(MISSING) == "MISSING"
