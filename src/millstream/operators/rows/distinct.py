"""Operators that remember nothing of a key but that it was there: `unique`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.rows.by_key import KeyedOperator

if TYPE_CHECKING:
    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.state.table import Table

__all__ = ["DistinctOperator"]


class DistinctOperator(KeyedOperator):
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
