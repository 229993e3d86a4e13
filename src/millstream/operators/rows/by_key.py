"""What operators that remember something for every key have in common.

They remember it in a table, which they tell about the keys of every batch before they
work on it.
"""

from __future__ import annotations

from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from millstream.operators.base import OneInputOperator, Operator, Rows
from millstream.state.copies import own_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.plan.logical import Node
    from millstream.state.base import State
    from millstream.state.table import Table

__all__ = ["KeyedEntries", "KeyedOperator", "kept_entries"]

_LEAVING_ROWS = 1024
_key = itemgetter(0)


class KeyedEntries(Operator):
    """An entry for each key, of an operator on pairs of key and value."""

    #: Whether keys stay: it deletes none while rows come, nor behind a flush.
    keeps_keys = True

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes)
        self.table = table
        self.state: State = table
        if self.keeps_keys:
            table.keep_keys()

    def touched(self, rows: Rows) -> dict[Any, Any]:
        """Return the dict in which to read and change the entries of the rows' keys."""
        rows_iterator = iter(rows)
        return self.table.touch(map(_key, rows_iterator))

    def entries_of(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the dict in which to read and change the entries of these keys."""
        return self.table.touch(keys)

    def begin_undo(self, rows: Rows) -> Callable[[], None]:
        return kept_entries(self.touched(rows), rows)

    def leaving(self) -> Iterator[Rows]:
        """Yield all entries a batch at a time, and forget them at the end."""
        yield from self.batches()
        self.table.clear()

    def batches(self) -> Iterator[Rows]:
        """Yield all entries a batch at a time."""
        entries = iter(self.table.items())
        while rows := list(islice(entries, _LEAVING_ROWS)):
            yield rows

    def forget_round(self) -> None:
        """Forget all keys of a round, which no snapshot knows."""
        self.table.clear()
        self.begin_anew()

    def reset_after_flush(self) -> None:
        """Forget all keys, and let the next snapshot know, unless they stay."""
        if not self.keeps_keys:
            self.table.delete_all()
            self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what follows from entries, as there are none."""


class KeyedOperator(KeyedEntries, OneInputOperator):
    """A one-input operator with an entry for each key."""

    def reset(self) -> None:
        """Forget all keys."""
        self.forget_round()


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
