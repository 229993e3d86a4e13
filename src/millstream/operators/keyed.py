"""Operators that remember something for every key: user functions and `unique`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.by_key import ByKey
from millstream.plan.nodes import Process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.operators.base import Rows
    from millstream.plan.nodes import Node
    from millstream.state.table import Table

__all__ = ["DistinctKeys", "Processed"]


class Processed(ByKey):
    """A user's stateful function, called with the state of the row's key."""

    is_guarded = True
    keeps_keys = False

    def __init__(self, nodes: tuple[Node, ...], table: Table | None = None) -> None:
        super().__init__(nodes, table)
        spec = nodes[0].spec
        assert isinstance(spec, Process)
        self._function = spec.function.instance()

    def process(self, rows: Rows, port: int) -> Rows:  # noqa: ARG002 - one input
        function, states = self._function, self.touched(rows)
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
        for states in self.leaving():
            result: Rows = []
            for key, state in states:
                function.enter(state)
                made = function.on_end(key)
                if made is not None:
                    result += [(key, item) for item in made]
            yield result

    def close(self) -> None:
        super().close()
        self._function.close()


class DistinctKeys(ByKey):
    """The first row of every key; nothing is kept under the key but that it was there."""

    def __init__(self, nodes: tuple[Node, ...], table: Table | None = None) -> None:
        super().__init__(nodes, table)
        self._seen: set[Any] = set()

    def process(self, rows: Rows, port: int) -> Rows:  # noqa: ARG002 - one input
        table = self.table
        seen = self._seen if table is None else table.peek(key for key, _ in rows)
        fresh = dict.fromkeys(key for key, _ in rows if key not in seen)
        if table is None:
            self._seen.update(fresh)
        else:
            table.touch(fresh).update(fresh)
        return list(fresh)

    def restart(self, ended: frozenset[int]) -> None:
        """Forget all keys."""
        super().restart(ended)
        self._seen.clear()
