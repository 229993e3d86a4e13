"""Data frames in order, also more of them than fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.errors import SnapshotError
from millstream.operators.base import OneInputOperator
from millstream.operators.frames.runs import RowOrder, SortedRuns
from millstream.plan.frames import SortFrame
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.plan.logical import Node

__all__ = ["FrameSortOperator"]

_BATCH_ROWS = 65_536


class FrameSortOperator(OneInputOperator):
    """All rows in order when the input ends; with a limit, never many more than that.

    Rows beyond `memory_bytes` are put in order and go to disk.
    """

    def __init__(self, nodes: tuple[Node, ...], memory_bytes: int) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, SortFrame)
        self._limit = spec.limit
        self._spec = spec
        self._order = RowOrder(spec.by, spec.descending, spec.nulls_last)
        self._memory_bytes = memory_bytes
        self._runs = SortedRuns(self._order, memory_bytes)
        self._parts: list[pl.DataFrame] = []
        self._row_count = 0
        self._bytes = 0
        self.state = TaskState(self._everything, self._take_over)

    def _everything(self) -> list[pl.DataFrame]:
        """Return all rows, in an order in which sorting them again is stable."""
        return [*self._runs.frames(), *self._parts]

    def _take_over(self, former: list[list[pl.DataFrame]]) -> None:
        for frame in (frame for frames in former for frame in frames):
            self.process(self._as_now(frame))

    def _as_now(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return rows that another version of the flow may have kept, as this one does."""
        now = self._spec.schema
        if now is None:
            return frame
        is_same = all(now.get(name) == kind for name, kind in frame.schema.items())
        if not is_same or (
            len(frame.columns) < len(now) and not self._spec.is_narrowed
        ):
            msg = (
                f"the snapshot has rows of {self.nodes[-1].name!r} with the columns "
                f"{dict(frame.schema)}, and in this flow they have {dict(now)}; give the "
                "operator another name= and pass drop_state=True to begin it without "
                "state, or go on with the old program"
            )
            raise SnapshotError(msg)
        return frame.select(name for name in now if name in frame.columns)

    def process(self, rows: Any) -> Any:
        self._hold(rows)
        if self._limit is not None and self._row_count > 2 * self._limit + _BATCH_ROWS:
            self._hold(self._in_order())
        if self._bytes > self._memory_bytes:
            self._runs.add(self._in_order())
        return []

    def finish(self) -> Iterator[Any]:
        left = self._limit
        for rows in self._all_in_order():
            taken = rows if left is None else rows.head(left)
            yield from taken.iter_slices(_BATCH_ROWS)
            if left is not None:
                left -= taken.height
                if left == 0:
                    return

    def reset(self) -> None:
        """Forget all rows."""
        self._runs.close()
        self._runs = SortedRuns(self._order, self._memory_bytes)
        self._parts, self._row_count, self._bytes = [], 0, 0

    def close(self) -> None:
        self._runs.close()

    def _all_in_order(self) -> Iterable[pl.DataFrame]:
        if not self._runs:
            return (self._in_order(),) if self._parts else ()
        if self._parts:
            self._runs.add(self._in_order())
        return self._runs.merged()

    def _hold(self, rows: pl.DataFrame) -> None:
        self._parts.append(rows)
        self._row_count += rows.height
        self._bytes += int(rows.estimated_size())

    def _in_order(self) -> pl.DataFrame:
        """Return the rows held so far in order, as far as they count; hold none."""
        rows = self._order.sorted(pl.concat(self._parts))
        self._parts, self._row_count, self._bytes = [], 0, 0
        return rows if self._limit is None else rows.head(self._limit)
