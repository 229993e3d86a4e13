"""What operators that remember something for every key have in common.

Without snapshots they remember it in a dict and say nothing to anybody; with snapshots
in a table, which they tell about the keys of every batch before they work on it.
"""

from __future__ import annotations

from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from millstream.operators.base import Operator, Rows
from millstream.state.copies import own_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.plan.logical import Node
    from millstream.state.table import Table

__all__ = ["KeyedOperator", "kept_entries"]

_LEAVING_ROWS = 1024
_key = itemgetter(0)


class KeyedOperator(Operator):
    """An operator on pairs of key and value, with an entry for each key."""

    #: Whether it never deletes a key while rows come.
    keeps_keys = True

    def __init__(self, nodes: tuple[Node, ...], table: Table | None) -> None:
        super().__init__(nodes)
        self.state = self.table = table
        if table is not None and self.keeps_keys:
            table.keep_keys()
        #: The entries where there is no table.
        self.entries: dict[Any, Any] = {}

    def touched(self, rows: Rows) -> dict[Any, Any]:
        """Return the dict in which to read and change the entries of the rows' keys."""
        if self.table is None:
            return self.entries
        rows_iterator = iter(rows)
        return self.table.touch(map(_key, rows_iterator))

    def begin_undo(self, rows: Rows) -> Callable[[], None]:
        return kept_entries(self.touched(rows), rows)

    def leaving(self) -> Iterator[Rows]:
        """Yield all entries a batch at a time, and forget them at the end."""
        yield from self.batches()
        (self.entries if self.table is None else self.table).clear()

    def batches(self) -> Iterator[Rows]:
        """Yield all entries a batch at a time."""
        kept = self.entries if self.table is None else self.table
        entries = iter(kept.items())
        while rows := list(islice(entries, _LEAVING_ROWS)):
            yield rows

    def restart(self, ended: frozenset[int]) -> None:  # noqa: ARG002 - one input
        """Forget all keys."""
        (self.entries if self.table is None else self.table).clear()


def kept_entries(entries: dict[Any, Any], rows: Rows) -> Callable[[], None]:
    """Return what puts the entries of the rows' keys back as they are now."""
    keys = set(map(_key, rows))
    before = {key: own_copy(entries[key]) for key in keys if key in entries}

    def undo() -> None:
        for key in keys:
            if key in before:
                entries[key] = before[key]
            else:
                entries.pop(key, None)

    return undo
