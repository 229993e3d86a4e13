"""Operators that remember something for every key: user functions and `unique`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.base import Operator, Rows
from millstream.plan.nodes import Process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.plan.nodes import Node

__all__ = ["DistinctKeys", "Processed"]

_FINISH_KEYS = 1024


class Processed(Operator):
    """A user's stateful function, called with the state of the row's key."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, Process)
        self._function = spec.function.instance()
        self._states: dict[Any, Any] = {}

    def process(self, rows: Rows, port: int) -> Rows:  # noqa: ARG002 - one input
        function, states = self._function, self._states
        on_record, enter = function.on_record, function.enter
        result: Rows = []
        rows_iterator = iter(rows)
        for key, value in rows_iterator:
            state = states.get(key)
            if state is None:
                states[key] = state = {}
            enter(state)
            made = on_record(key, value)
            if made is not None:
                result += [(key, item) for item in made]
            if not state:
                del states[key]
        return result

    def finish(self) -> Iterable[Rows]:
        """Call `on_end` for every key that still has state."""
        function = self._function
        rows = list(self._states.items())
        self._states = {}
        result: Rows = []
        rows_iterator = iter(rows)
        for key, state in rows_iterator:
            function.enter(state)
            made = function.on_end(key)
            if made is not None:
                result += [(key, item) for item in made]
            if len(result) >= _FINISH_KEYS:
                yield result
                result = []
        yield result

    def close(self) -> None:
        self._function.close()


class DistinctKeys(Operator):
    """The first row of every key."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        self._seen: set[Any] = set()

    def process(self, rows: Rows, port: int) -> Rows:  # noqa: ARG002 - one input
        fresh = dict.fromkeys(key for key, _ in rows if key not in self._seen)
        self._seen.update(fresh)
        return list(fresh)
