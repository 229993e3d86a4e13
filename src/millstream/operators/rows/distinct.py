"""Operators that remember nothing of a key but that it was there: `unique`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.rows.by_key import KeyedOperator

if TYPE_CHECKING:
    from millstream.operators.base import Rows

__all__ = ["DistinctOperator"]


class DistinctOperator(KeyedOperator):
    """The first row of every key; nothing is kept under the key but that it was there."""

    def process(self, rows: Rows) -> Rows:
        seen = self.table.peek(key for key, _ in rows)
        fresh = dict.fromkeys(key for key, _ in rows if key not in seen)
        self.table.touch(fresh).update(fresh)
        return list(fresh)
