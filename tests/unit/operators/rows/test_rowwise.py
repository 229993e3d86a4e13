"""Row operators by hand: laziness, batches of ones own, and who is to blame."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.making import nodes, operators

from millstream.operators.failure import blame
from millstream.operators.rows.fuse import fuse
from millstream.operators.rows.rowwise import FusedRowOperator, MapBatchesOperator
from millstream.plan import nodes as specs


def test_nothing_to_fuse_gives_the_rows_back() -> None:
    """A stage may have no operators at all."""
    assert fuse([]).function([1, 2]) == [1, 2]


def test_chain_of_row_operators_becomes_one_operator() -> None:
    """Whatever their number."""
    chain = operators([specs.Map(abs), specs.Filter(abs), specs.FlatMap(range)])

    assert [type(operator) for operator in chain] == [FusedRowOperator]


def test_rows_are_pulled_one_by_one_through_the_whole_chain() -> None:
    """Then the iterator over the batch tells which row failed."""
    order: list[str] = []

    def note(name: str) -> Any:
        def look(row: int) -> list[int]:
            order.append(f"{name}{row}")
            return [row]

        return look

    chain = [specs.FlatMap(note("a")), specs.FlatMap(note("b"))]
    fuse(nodes(chain)).function([1, 2])

    assert order == ["a1", "b1", "a2", "b2"]


def test_batch_function_may_change_the_list_it_gets() -> None:
    """Another branch of the flow may read the same batch."""

    def sort(rows: list[int]) -> list[int]:
        rows.sort()
        return rows

    (operator,) = operators([specs.MapBatches(sort)])
    assert isinstance(operator, MapBatchesOperator)
    shared = [3, 1, 2]

    assert operator.process(shared) == [1, 2, 3]
    assert shared == [3, 1, 2]


def test_batch_function_must_return_a_list() -> None:
    """A forgotten return is found at once."""
    (operator,) = operators([specs.MapBatches(lambda rows: None)])  # type: ignore[arg-type, return-value]

    with pytest.raises(TypeError, match="must return a list of rows, got NoneType"):
        operator.process([1])


class Unprintable:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        msg = "no"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("x" * 1000, "'" + "x" * 199 + "…"),
        (Unprintable(), "<Unprintable whose repr raised RuntimeError>"),
    ],
)
def test_row_in_a_message_is_short_and_never_raises(row: Any, text: str) -> None:
    """The message of one failure does not become another."""

    def fail(_row: Any) -> None:
        raise ZeroDivisionError

    operator = FusedRowOperator(nodes([specs.Map(fail)]))
    with pytest.raises(ZeroDivisionError) as raised:
        operator.process([row])

    assert blame(raised.value, operator, [row]).row_text == text


def test_innermost_line_of_the_user_is_shown() -> None:
    """Not the line of the engine that called it."""
    operator = FusedRowOperator(nodes([specs.Map(lambda row: 1 // row)]))

    with pytest.raises(ZeroDivisionError) as raised:
        operator.process([0])

    line = blame(raised.value, operator, [0]).user_line
    assert line.startswith("test_rowwise.py:")
    assert "1 // row" in line


def test_line_of_the_standard_library_is_not_the_users() -> None:
    """The user wrote the call of `json.loads`, not its insides."""
    operator = FusedRowOperator(nodes([specs.Map(lambda row: json.loads(row))]))  # noqa: PLW0108

    with pytest.raises(json.JSONDecodeError) as raised:
        operator.process(["{"])

    assert "json.loads(row)" in blame(raised.value, operator, ["{"]).user_line
