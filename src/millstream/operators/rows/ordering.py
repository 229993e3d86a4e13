"""Operators that care about order or number: `limit`, `sort_by`, `zip`."""

from __future__ import annotations

import heapq
import pickle
from itertools import islice
from typing import TYPE_CHECKING, Any

from millstream.errors import SnapshotError
from millstream.operators.base import (
    EarlyEndingOperator,
    OneInputOperator,
    Rows,
    TwoInputOperator,
)
from millstream.plan.nodes import Limit, SortBy
from millstream.state.spill_buffer import SpillFile
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.plan.logical import Node
    from millstream.state.spill_buffer import Piece

__all__ = ["LimitOperator", "SortKeyOperator", "SortOperator", "ZipOperator"]

_BATCH_ROWS = 1024


class LimitOperator(OneInputOperator, EarlyEndingOperator):
    """The first rows, then none."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, Limit)
        self._left = spec.rows
        self.state = TaskState(lambda: self._left, self._put)

    @property
    def is_satisfied(self) -> bool:
        """Whether all rows that were asked for have passed."""
        return self._left <= 0

    def process(self, rows: Rows) -> Rows:
        taken = rows[: self._left]
        self._left -= len(taken)
        return taken

    def reset(self) -> None:
        """Let as many rows pass again."""
        spec = self.nodes[0].spec
        assert isinstance(spec, Limit)
        self._left = spec.rows

    def _put(self, values: list[int]) -> None:
        # Where there are several, one more limit follows: only too few rows would harm.
        self._left = max(values)


class SortKeyOperator(OneInputOperator):
    """Calls the key function of a sort as rows come, to find those it raises on."""

    is_guarded = True

    def process(self, rows: Rows) -> Rows:
        spec = self.nodes[0].spec
        assert isinstance(spec, SortBy)
        key = spec.key
        rows_iterator = iter(rows)
        for row in rows_iterator:
            key(row)
        return rows


class SortOperator(OneInputOperator):
    """All rows in order; runs beyond the memory limit wait in an unnamed file.

    A capture holds all rows there are, so it reads the runs back: a large sort does not
    go well with frequent snapshots.  A sort with a limit keeps few.
    """

    def __init__(self, nodes: tuple[Node, ...], memory_rows: int) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, SortBy)
        self._spec = spec
        self._memory_rows = memory_rows
        self._rows: Rows = []
        self._runs: list[list[Piece]] = []
        self.state = TaskState(self._kept, self._put)

    def process(self, rows: Rows) -> Rows:
        self._rows += rows
        limit = self._spec.limit
        if limit is not None and len(self._rows) > 2 * limit + _BATCH_ROWS:
            self._rows = self._in_order(self._rows)[:limit]
        elif len(self._rows) >= self._memory_rows:
            self._spill()
        return []

    def finish(self) -> Iterator[Rows]:
        key, is_descending = self._spec.key, self._spec.is_descending
        # Oldest first: where keys are equal, a merge takes the earlier run's row first.
        runs = [*(_stored(run) for run in self._runs), self._in_order(self._rows)]
        self._rows, self._runs = [], []
        merged = heapq.merge(*runs, key=key, reverse=is_descending)
        in_order = islice(merged, self._spec.limit)
        while rows := list(islice(in_order, _BATCH_ROWS)):
            yield rows

    def reset(self) -> None:
        """Forget all rows."""
        self._rows, self._runs = [], []

    def close(self) -> None:
        super().close()
        self._runs = []

    def _in_order(self, rows: Rows) -> Rows:
        return sorted(rows, key=self._spec.key, reverse=self._spec.is_descending)

    def _spill(self) -> None:
        rows, file = self._in_order(self._rows), SpillFile()
        starts = range(0, len(rows), _BATCH_ROWS)
        batches = (rows[start : start + _BATCH_ROWS] for start in starts)
        run = [file.append(pickle.dumps(batch, protocol=5)) for batch in batches]
        self._runs.append(run)
        self._rows = []

    def _kept(self) -> Rows:
        """Return all rows, oldest runs first, to be sorted anew."""
        rows: Rows = []
        for run in self._runs:
            rows += _stored(run)
        return rows + self._rows

    def _put(self, values: list[Rows]) -> None:
        for rows in values:
            for start in range(0, len(rows), _BATCH_ROWS):
                self.process(rows[start : start + _BATCH_ROWS])


def _stored(run: list[Piece]) -> Iterator[Any]:
    """Yield the rows of a run that this process wrote to an unnamed file."""
    for piece in run:
        yield from pickle.loads(piece.read())  # noqa: S301 - nobody else can reach it


class ZipOperator(TwoInputOperator, EarlyEndingOperator):
    """Pairs of the i-th rows of two inputs; rows without a partner are dropped."""

    def __init__(self, nodes: tuple[Node, ...], ahead_rows_max: int) -> None:
        super().__init__(nodes)
        self._waiting: tuple[Rows, Rows] = ([], [])
        self._ended: set[int] = set()
        self._ahead_rows_max = ahead_rows_max
        self.state = TaskState(lambda: self._waiting, self._put)

    @property
    def is_satisfied(self) -> bool:
        """Whether no row can find a partner any more."""
        return any(not self._waiting[port] for port in self._ended)

    def on_input_end(self, port: int) -> None:
        self._ended.add(port)

    def process(self, rows: Rows, port: int) -> Rows:
        left, right = self._waiting
        self._waiting[port].extend(rows)
        count = min(len(left), len(right))
        pairs = list(zip(left[:count], right[:count], strict=True))
        del left[:count], right[:count]
        ahead = max(len(left), len(right))
        if ahead > self._ahead_rows_max:
            msg = (
                f"one side of the zip is {ahead} rows ahead of the other, at most "
                f"{self._ahead_rows_max} may wait; raise the setting "
                "'zip_ahead_rows_max' or join the streams by a key"
            )
            raise RuntimeError(msg)
        return pairs

    def reset(self, ended: frozenset[int]) -> None:
        """Forget the rows without a partner."""
        self._waiting = ([], [])
        self._ended = set(ended)

    def _put(self, values: list[tuple[Rows, Rows]]) -> None:
        if len(values) > 1:
            msg = (
                f"rows of {len(values)} tasks wait for their partners in the stored "
                "state of this zip, which runs in one task; the state is not of this "
                "flow, so start without it"
            )
            raise SnapshotError(msg)
        self._waiting = values[0]
