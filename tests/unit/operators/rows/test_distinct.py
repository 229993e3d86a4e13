"""Stateful functions: whose state a handle stands for, and when it goes away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.making import drained, operators

from millstream.api.functions import MapWithState, StatefulFunction
from millstream.api.state_handles import ListState, MapState, ValueState
from millstream.plan import nodes as specs

if TYPE_CHECKING:
    from collections.abc import Callable


class Scripted(StatefulFunction[Any, Any, Any]):
    """Runs whatever function the value is."""

    value = ValueState[int](default=7)
    items = ListState[int]()
    table = MapState[str, int]()

    def on_record(self, key: Any, value: Callable[[Scripted], Any]) -> list[Any]:
        return [value(self)]

    def on_end(self, key: Any) -> list[Any]:
        return ["end"]


Step = tuple[str, "Callable[[Scripted], Any]"]


def outcome(*steps: Step) -> list[Any]:
    (operator,) = operators([specs.Process(Scripted())])
    return drained(operator, [[step] for step in steps])


def test_value_has_a_default_until_it_is_set() -> None:
    """And again after it was cleared."""
    assert outcome(
        ("a", lambda f: (f.value.exists(), f.value.get())),
        ("a", lambda f: f.value.update(1)),
        ("a", lambda f: (f.value.exists(), f.value.get())),
        ("a", lambda f: f.value.clear()),
        ("a", lambda f: f.value.get()),
    ) == [
        ("a", (False, 7)),
        ("a", None),
        ("a", (True, 1)),
        ("a", None),
        ("a", 7),
    ]


def test_state_belongs_to_its_key() -> None:
    """Handles change sides with every record."""
    rows = outcome(
        ("a", lambda f: f.value.update(1)),
        ("b", lambda f: f.value.get()),
        ("a", lambda f: f.value.get()),
    )

    assert rows[1:3] == [("b", 7), ("a", 1)]


def test_end_is_told_to_keys_that_still_have_state() -> None:
    """A key without any value costs nothing and hears nothing."""
    rows = outcome(
        ("kept", lambda f: f.value.update(1)),
        ("cleared", lambda f: f.value.update(1)),
        ("cleared", lambda f: f.value.clear()),
        ("never set", lambda f: f.value.get()),
    )

    assert rows[4:] == [("kept", "end")]


def test_list_is_given_as_a_copy() -> None:
    """Changing what `get` returned changes nothing."""
    rows = outcome(
        ("a", lambda f: f.items.append(1)),
        ("a", lambda f: f.items.extend([2, 3])),
        ("a", lambda f: f.items.get().clear()),
        ("a", lambda f: (len(f.items), list(f.items))),
        ("a", lambda f: f.items.update([9])),
        ("a", lambda f: f.items.get()),
    )

    assert rows[3] == ("a", (3, [1, 2, 3]))
    assert rows[5] == ("a", [9])


def test_map_forgets_itself_with_its_last_entry() -> None:
    """So that its key can be forgotten too."""
    rows = outcome(
        ("a", lambda f: f.table.update("x", 1)),
        ("a", lambda f: ("x" in f.table, "y" in f.table, len(f.table))),
        ("a", lambda f: (f.table.get("x"), f.table.get("y", 5), f.table.items())),
        ("a", lambda f: f.table.remove("x")),
        ("a", lambda f: f.table.exists()),
    )

    assert rows[1] == ("a", (True, False, 1))
    assert rows[2] == ("a", (1, 5, [("x", 1)]))
    assert rows[4] == ("a", False)
    assert len(rows) == 5, "no end for a key without state"


def test_instances_of_two_tasks_share_nothing() -> None:
    """Each task works on a copy, opened there."""
    function = Scripted()
    first, second = function._instance(), function._instance()
    first.key_state = {}
    first.value.update(1)
    second.key_state = {}

    assert (first.value.get(), second.value.get()) == (1, 7)


def test_handle_that_was_looked_at_before_the_start_works_all_the_same() -> None:
    """A constructor may touch a handle; each task's copy has handles of its own."""

    class Curious(Scripted):
        def __init__(self) -> None:
            self.default = self.value._default

    (operator,) = operators([specs.Process(Curious())])

    rows = drained(operator, [[("a", lambda f: f.value.get())]])

    assert rows == [("a", 7)]


def test_map_with_state_starts_every_key_with_a_copy() -> None:
    """A list as initial state is not shared."""

    def step(seen: list[int], value: int) -> tuple[list[int], int]:
        seen.append(value)
        return seen, len(seen)

    (operator,) = operators([specs.Process(MapWithState([], step))])

    rows = drained(operator, [[("a", 1), ("b", 1), ("a", 1)]])

    assert rows == [("a", 1), ("b", 1), ("a", 2)]


def test_function_may_return_nothing() -> None:
    """None is as good as an empty list."""

    class Silent(StatefulFunction[Any, Any, Any]):
        def on_record(self, key: Any, value: Any) -> None:
            self.key_state["seen"] = True

    (operator,) = operators([specs.Process(Silent())])

    assert drained(operator, [[("a", 1)]]) == []
