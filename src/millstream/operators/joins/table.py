"""Joins with a table without time: each left row with the newest right row of its key.

Where the right side ends, left rows wait for its end, and the result does not depend on
who was quicker.  Where it does not end, a left row meets what has come before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.base import Rows, TickingOperator, TwoInputOperator
from millstream.operators.due import chunks
from millstream.operators.joins.base import CHUNK_KEYS
from millstream.plan.joins import RIGHT, How, JoinTable
from millstream.state.nan import rows_with_one_nan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.joins.sides import Sides
    from millstream.plan.logical import Node

__all__ = ["TableJoinOperator", "with_table_row"]

_AT_ONCE = 0


def with_table_row(how: How, value: Any, found: list[Any]) -> list[Any]:
    """Return what comes out of a left row; `found` is its right row, if there is one."""
    if how is How.SEMI or how is How.ANTI:
        return [value] if bool(found) == (how is How.SEMI) else []
    if found:
        return [(value, found[0])]
    return [] if how is How.INNER else [(value, None)]


class TableJoinOperator(TwoInputOperator, TickingOperator):
    """Left rows that wait for the table, and one row of the table, by key."""

    def __init__(self, nodes: tuple[Node, ...], sides: Sides) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, JoinTable)
        self._how = spec.how
        self._waits = spec.waits
        self._is_waiting = spec.waits
        #: Whether left rows come as they are, and not by key.
        self._is_broadcast = spec.is_broadcast
        self._sides = sides
        self.state = sides.state

    def process(self, rows: Rows, port: int) -> Rows:
        sides = self._sides
        if self._is_broadcast:
            rows = rows_with_one_nan(rows)
        sides.open([key for key, _ in rows])
        if port == RIGHT:
            for key, value in rows:
                left, _ = sides.get(key)
                sides.put(key, left, [] if value is None else [value])
            return []
        if not self._is_waiting:
            how = self._how
            return [
                (key, made)
                for key, value in rows
                for made in with_table_row(how, value, sides.get(key)[RIGHT])
            ]
        for key, value in rows:
            left, right = sides.get(key)
            sides.put(key, [*left, (0, value)], right)
        return []

    def on_input_end(self, port: int) -> None:
        """Let the left rows that waited for the table be joined."""
        if port == RIGHT and self._is_waiting:
            self._is_waiting = False
            self.tick_at_ms = _AT_ONCE

    def tick(self, now_ms: int) -> Iterable[Rows]:  # noqa: ARG002 - whatever the time
        self.tick_at_ms = None
        return self._waited()

    def finish(self) -> Iterable[Rows]:
        return self._waited()

    def _waited(self) -> Iterator[Rows]:
        """Join the left rows that waited."""
        keys = [key for key, left, _ in self._sides.items() if left]
        for some in chunks(keys, CHUNK_KEYS):
            self._sides.open(some)
            result: Rows = []
            for key in some:
                left, right = self._sides.get(key)
                for _, value in left:
                    made = with_table_row(self._how, value, right)
                    result += [(key, each) for each in made]
                self._sides.put(key, [], right)
            yield result

    def reset(self, ended: frozenset[int]) -> None:
        """Wait for another table, unless this one is for all rounds."""
        self.tick_at_ms = None
        if RIGHT not in ended:
            self._sides.clear()
            self._is_waiting = self._waits

    def reset_after_flush(self) -> None:
        """Keep the table, which left rows that come round are joined with."""
