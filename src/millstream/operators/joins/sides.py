"""Where a join with a table keeps its two sides: by key, or the table in every task.

Where every task has the whole table, left rows of one key may wait in several tasks.  So
what they keep has the number of the task beside the key, and a snapshot holds the table
once for every task.  After a change of their number each task takes the whole table, and
the left rows of one former task go to one task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millstream.operators.joins.base import time_of
from millstream.plan.joins import LEFT, RIGHT
from millstream.state.base import ALL_SHARDS

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator

    from millstream.protocol.ids import Epoch
    from millstream.state.base import Capture, Segment, ShardRange
    from millstream.state.table import Table
    from millstream.values import Entries, Key, Rows

    _Place = tuple[int, int, Key]
    """Side, task and key: what the table of a task has as its keys."""

__all__ = ["KeyedSides", "Sides", "WholeSides"]


class KeyedSides:
    """Both sides of a key in one entry: a list of left rows and a list of right rows."""

    def __init__(self, table: Table) -> None:
        self.table = self.state = table
        self._entries: Entries = {}

    def open(self, keys: Iterable[Key]) -> None:
        """Let the rows of these keys be read and changed, until the next call."""
        self._entries = self.table.touch(keys)

    def get(self, key: Key) -> tuple[Rows, Rows]:
        """Return the rows of an open key."""
        entry: tuple[Rows, Rows] | None = self._entries.get(key)
        return ([], []) if entry is None else entry

    def put(self, key: Key, left: Rows, right: Rows) -> None:
        """Set the rows of an open key."""
        if left or right:
            self._entries[key] = (left, right)
        else:
            self._entries.pop(key, None)

    def items(self) -> Iterator[tuple[Key, Rows, Rows]]:
        """Yield all keys, each with rows of either side."""
        for key, (left, right) in self.table.items():
            yield key, left, right

    def clear(self) -> None:
        """Forget everything."""
        self.table.clear()


class WholeSides:
    """Left rows that wait in one task, and the whole right side beside them.

    It is the state of its operator itself, because it restores in its own way.

    Parameters
    ----------
    task_count
        Among how many tasks the left rows of former ones are shared out.
    """

    def __init__(self, table: Table, task: int, task_count: int) -> None:
        self.table = table
        self.state = self
        self._task = task
        self._task_count = task_count
        self._entries: Entries = {}

    def open(self, keys: Iterable[Key]) -> None:
        """Let the rows of these keys be read and changed, until the next call."""
        self._entries = self.table.touch(
            [(kind, self._task, key) for key in keys for kind in (LEFT, RIGHT)]
        )

    def get(self, key: Key) -> tuple[Rows, Rows]:
        """Return the rows of an open key."""
        left = self._entries.get((LEFT, self._task, key))
        right = self._entries.get((RIGHT, self._task, key))
        return ([] if left is None else left), ([] if right is None else right)

    def put(self, key: Key, left: Rows, right: Rows) -> None:
        """Set the rows of an open key."""
        for kind, rows in ((LEFT, left), (RIGHT, right)):
            if rows:
                self._entries[kind, self._task, key] = rows
            else:
                self._entries.pop((kind, self._task, key), None)

    def items(self) -> Iterator[tuple[Key, Rows, Rows]]:
        """Yield all keys, those with both sides twice."""
        for (kind, _, key), rows in self._places():
            yield (key, rows, []) if kind == LEFT else (key, [], rows)

    def clear(self) -> None:
        """Forget everything."""
        self.table.clear()

    def _places(self) -> ItemsView[_Place, Rows]:
        return cast("ItemsView[_Place, Rows]", self.table.items())

    # As a state

    def capture(self, epoch: Epoch, since: Epoch) -> Capture:
        """Return what changed, from the table."""
        return self.table.capture(epoch, since)

    def complete(self, epoch: Epoch) -> None:
        """Forget what is only needed for deltas since an epoch before this one."""
        self.table.complete(epoch)

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:  # noqa: ARG002
        """Take the table of any task, and the left rows of those whose place it takes."""
        self.table.restore(segments, ALL_SHARDS)
        foreign = {
            place: rows for place, rows in self._places() if place[1] != self._task
        }
        for (kind, task, key), rows in foreign.items():
            own = (kind, self._task, key)
            entries = self.table.touch([own, (kind, task, key)])
            del entries[kind, task, key]
            kept = entries.get(own, [])
            if kind == LEFT and task % self._task_count == self._task:
                entries[own] = sorted([*kept, *rows], key=time_of)
            elif kind == RIGHT and len(rows) > len(kept):
                # All had the same rows, of which some had forgotten the first ones.
                entries[own] = rows

    def close(self) -> None:
        """Give back files and memory."""
        self.table.close()


Sides = KeyedSides | WholeSides
