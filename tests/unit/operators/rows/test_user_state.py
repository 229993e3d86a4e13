"""Functions of the user that remember: one copy per task, captured and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.making import drained, operators

import millstream as ms
from millstream.errors import SnapshotError
from millstream.plan import nodes as specs
from millstream.plan.aggregate import builtin
from millstream.protocol.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.spec import Spec
    from millstream.state.base import Segment


class Counting(ms.OperatorState):
    """Counts its calls, in a list that a shallow copy would share."""

    def __init__(self, answer: Callable[[int, Any], Any]) -> None:
        self.calls = [0]
        self._answer = answer

    def __call__(self, row: Any) -> Any:
        self.calls[0] += 1
        return self._answer(self.calls[0], row)

    def capture(self) -> int:
        return self.calls[0]

    def restore(self, value: int) -> None:
        self.calls[0] = value


class Merging(Counting):
    """Knows what several counts are together."""

    def merge(self, values: list[int]) -> int:
        return sum(values)


def numbered(count: int, row: Any) -> tuple[int, Any]:
    return count, row


SPECS: list[tuple[Spec, list[Any]]] = [
    (specs.Map(Counting(numbered)), [(3, "c"), (4, "d")]),
    (specs.FlatMap(Counting(lambda n, row: [row] * n)), ["c"] * 3 + ["d"] * 4),
    (specs.Filter(Counting(lambda n, _row: n == 4)), ["d"]),
    (specs.FilterMap(Counting(lambda n, _row: n if n > 3 else None)), [4]),
    (specs.KeyBy(Counting(lambda n, _row: n)), [(3, "c"), (4, "d")]),
    (specs.MapBatches(Counting(lambda n, rows: [n, *rows])), [2, "c", "d"]),
]
VERBS = [type(spec).__name__ for spec, _ in SPECS]


def one(spec: Spec) -> Any:
    (operator,) = operators([spec])
    return operator


def captured(operator: Any, task: int = 0) -> list[Segment]:
    assert operator.state is not None
    return list(operator.state.capture(Epoch(1), Epoch(0)).segments("f", task))


def restored(spec: Spec, segments: list[Segment]) -> Any:
    operator = one(spec)
    assert operator.state is not None
    operator.state.restore(segments, (0, 1))
    return operator


@pytest.mark.parametrize(("spec", "expected"), SPECS, ids=VERBS)
def test_function_goes_on_where_it_was(spec: Spec, expected: list[Any]) -> None:
    """Whichever verb it was given to."""
    before = one(spec)
    before.process(["a", "b"])
    segments = captured(before)
    before.process(["lost"])

    assert drained(restored(spec, segments), [["c", "d"]]) == expected


def test_for_each_has_state_as_well() -> None:
    """A function called for its effect may count its calls."""
    seen: list[int] = []
    spec = specs.ForEach(Counting(lambda n, _row: seen.append(n)))
    before = one(spec)
    before.process(["a", "b"])

    restored(spec, captured(before)).process(["c"])

    assert seen == [1, 2, 3]


def test_every_task_has_a_copy() -> None:
    """The function in the plan is what a task made anew begins with."""
    function = Counting(numbered)
    one(specs.Map(function)).process(["a", "b"])

    assert one(specs.Map(function)).process(["c"]) == [(1, "c")]
    assert function.calls == [0]


def test_function_that_remembers_is_an_operator_of_its_own() -> None:
    """So that its state is stored under its own name."""
    chain = operators(
        [
            specs.Map(str),
            specs.Map(Counting(numbered)),
            specs.Map(Counting(numbered)),
            specs.KeyBy(lambda row: row[0]),
            specs.Combine(builtin("count")),
        ]
    )

    names = [[node.name for node in operator.nodes] for operator in chain]
    assert names == [["map-0"], ["map-1"], ["map-2"], ["keyby-3", "combine-4"]]
    assert [operator.state is not None for operator in chain] == [
        False,
        True,
        True,
        False,
    ]


def test_states_of_several_tasks_are_merged() -> None:
    """By the user's own `merge`, when a job goes on with fewer tasks."""
    spec = specs.Map(Merging(numbered))
    segments: list[Segment] = []
    for task in range(3):
        operator = one(spec)
        operator.process(["x"] * (task + 1))
        segments += captured(operator, task)

    assert restored(spec, segments).process(["y"]) == [(7, "y")]


def test_states_that_cannot_be_merged_are_refused() -> None:
    """The sentence names the class and both ways out."""
    spec = specs.Map(Counting(numbered))
    segments = captured(one(spec), 0) + captured(one(spec), 1)

    with pytest.raises(SnapshotError, match=r"2 tasks of Counting .* define `merge"):
        restored(spec, segments)
