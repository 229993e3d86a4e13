"""Join a frame with another one, of which every task has all rows.

The right side comes first: left rows wait until it is complete.  They are taken in
meanwhile, and beyond a limit wait on disk.  Not to take them would cost no disk, but it
would stop what else comes that way: barriers, and a source that both sides are read from,
and with it the right side itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from millstream.operators.base import (
    EarlyEndingOperator,
    OneInputOperator,
    TwoInputOperator,
)
from millstream.operators.frames.hash_lookup import MANY, HashLookup, hashes_of
from millstream.plan.frames import JoinFrames, JoinStatic
from millstream.state.spill_buffer import SpillQueue
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.plan.logical import Node

    _Sides = tuple[int, list[pl.DataFrame], list[pl.DataFrame]]
    """Index of a task, the right side, and the left rows that waited there."""

__all__ = ["FrameHashJoinOperator", "FrameStaticJoinOperator"]

_RIGHT = 1


class FrameHashJoinOperator(TwoInputOperator, EarlyEndingOperator):
    """Every batch of the left side with all of the right side.

    Parameters
    ----------
    right_bytes_max
        Bytes of the right side above which the task fails.
    left_memory_bytes
        Bytes of left rows that wait in memory; those beyond it wait on disk.
    place
        Index of the task, and how many workers there are.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        right_bytes_max: int,
        left_memory_bytes: int,
        place: tuple[int, int] = (0, 1),
    ) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, JoinFrames)
        self._spec = spec
        self._right_bytes_max = right_bytes_max
        self._right_bytes = 0
        self._right_rows = 0
        self._parts: list[pl.DataFrame] = [pl.DataFrame(schema=spec.right_schema)]
        self._right: _RightSide | None = None
        self._waiting = SpillQueue(left_memory_bytes)
        self._place = place
        self.state = TaskState(self._both_sides, self._take_over, is_shared=True)

    def _both_sides(self) -> _Sides:
        """Return the right side as far as it has come, and the left rows that wait."""
        right = self._parts if self._right is None else [self._right.rows]
        return self._place[0], list(right), list(self._waiting)

    def _take_over(self, former: list[_Sides]) -> None:
        """Take one right side, which all tasks had alike, and a share of what waited."""
        own, count = self._place
        for rows in former[0][1]:
            self._take_right(rows)
        for index, _, waiting in former:
            for rows in waiting if index % count == own else ():
                self._waiting.append(rows)

    @property
    def is_satisfied(self) -> bool:
        """Whether no left row can find a partner, and needs one."""
        is_empty = self._right is not None and not self._right_rows
        return is_empty and self._spec.how in ("inner", "semi")

    def process(self, rows: Any, port: int) -> Any:
        if port == _RIGHT:
            self._take_right(rows)
            return []
        if self._right is None or self._waiting:
            self._waiting.append(rows)
            return [] if self._right is None else self._waited(self._right)
        return self._right.joined(rows)

    def on_input_end(self, port: int) -> None:
        if port == _RIGHT and self._right is None:
            self._right = _RightSide(pl.concat(self._parts), self._spec)
            self._parts = []

    def finish(self) -> Iterator[Any]:
        self.on_input_end(_RIGHT)
        assert self._right is not None
        while self._waiting:
            yield self._right.joined(self._waiting.popleft())

    def reset(self, ended: frozenset[int]) -> None:
        """Wait for another right side, unless this one is for all rounds."""
        if _RIGHT not in ended:
            self._parts = [pl.DataFrame(schema=self._spec.right_schema)]
            self._right, self._right_bytes, self._right_rows = None, 0, 0

    def reset_after_flush(self) -> None:
        """Keep the right side, which left rows that come round are joined with."""

    def close(self) -> None:
        self._waiting.clear()

    def _take_right(self, rows: pl.DataFrame) -> None:
        self._parts.append(rows)
        self._right_rows += rows.height
        self._right_bytes += int(rows.estimated_size())
        if self._right_bytes > self._right_bytes_max:
            msg = (
                f"the right side of the join has more than {self._right_bytes_max} "
                "bytes, and every worker must hold all of it; put the smaller frame on "
                "the right, select fewer columns or rows of it, or raise the setting "
                "'join_right_bytes_max'"
            )
            raise RuntimeError(msg)

    def _waited(self, right: _RightSide) -> pl.DataFrame:
        """Return the rows of two waiting batches, so that the queue gets shorter."""
        batches = [self._waiting.popleft() for _ in range(min(2, len(self._waiting)))]
        return pl.concat([right.joined(batch) for batch in batches])


class FrameStaticJoinOperator(OneInputOperator):
    """Every batch with all of a data frame that came with the plan."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, JoinStatic)
        self._right = _RightSide(spec.right, spec.join)

    def process(self, rows: Any) -> Any:
        return self._right.joined(rows)


class _RightSide:
    """All rows of the right side, found by the hashes of their keys."""

    def __init__(self, rows: pl.DataFrame, spec: JoinFrames) -> None:
        self.rows = rows
        self._spec = spec
        self._lookup = HashLookup(hashes_of(rows, spec.right_on))

    def joined(self, left: pl.DataFrame) -> pl.DataFrame:
        """Return what Polars makes of the batch and all of the right side."""
        right = self.rows
        if right.height > MANY * left.height:
            wanted = np.unique(hashes_of(left, self._spec.left_on))
            right = right[self._lookup.places(wanted)]
        result: pl.DataFrame = self._spec.query(left.lazy(), right.lazy()).collect()
        return result
