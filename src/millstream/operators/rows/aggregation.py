"""Aggregates by key and over everything, and the combiners in front of them.

A combiner aggregates inside the sending stage, so that a key costs one row per flush
and not one per record.  Counting runs through `Counter`, whose loop is in C; the
other aggregates have one dict loop per batch.
"""

from __future__ import annotations

from collections import Counter
from functools import partial, reduce
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from millstream.errors import SnapshotError
from millstream.operators.base import OneInputOperator, Rows, TickingOperator
from millstream.operators.rows.by_key import KeyedOperator, kept_entries
from millstream.operators.rows.fuse import fuse
from millstream.plan.aggregate import MISSING
from millstream.plan.nodes import (
    AggregateAll,
    AggregateByKey,
    Combine,
    CombineAll,
    Scan,
)
from millstream.state.copies import own_copy
from millstream.state.keyhash import check_keys
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.config import Config
    from millstream.plan.aggregate import Aggregate
    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.table import Table

__all__ = [
    "AggregateOperator",
    "CombineOperator",
    "CountCombineOperator",
    "GlobalAggregateOperator",
    "ScanOperator",
    "accumulate",
]

_HELD_TIMEOUTS = 4
"""For so many timeouts of a buffer rows may be held: the longer, the fewer remain."""

_TIMEOUT_NS = 250_000_000
"""What stands for the timeout of buffers that have none."""

_key = itemgetter(0)


def accumulate(parts: dict[Any, Any], rows: Rows, aggregate: Aggregate) -> None:
    """Update the accumulator of each row's key with the row's value."""
    first, update = aggregate.first, aggregate.update
    rows_iterator = iter(rows)
    for key, value in rows_iterator:
        if key in parts:
            parts[key] = update(parts[key], value)
        else:
            parts[key] = first(value)


def accumulate_sums(parts: dict[Any, Any], rows: Rows) -> None:
    """Add each row's value to the sum of its key."""
    rows_iterator = iter(rows)
    for key, value in rows_iterator:
        if key in parts:
            parts[key] = parts[key] + value  # += would change the user's own row
        else:
            parts[key] = value


def accumulate_parts(parts: dict[Any, Any], rows: Rows, aggregate: Aggregate) -> None:
    """Merge each row, a pair of key and accumulator, into the accumulators."""
    if aggregate.kind in ("count", "sum"):
        accumulate_sums(parts, rows)
        return
    merge = aggregate.merge
    assert merge is not None
    rows_iterator = iter(rows)
    for key, part in rows_iterator:
        parts[key] = merge(parts[key], part) if key in parts else part


class CombineOperator(OneInputOperator, TickingOperator):
    """Keeps accumulators by key and sends them on before a cut or when it is full."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...], config: Config, clock: Clock) -> None:
        super().__init__(nodes)
        spec = nodes[-1].spec
        assert isinstance(spec, Combine)
        self._aggregate = spec.aggregate
        self._keys_max = config.combine_keys_max
        self._parts: dict[Any, Any] = {}
        self._clock = clock
        held_ns = _HELD_TIMEOUTS * (config.buffer.timeout_ns or _TIMEOUT_NS)
        #: For how long rows may be held; None where nobody waits for them.
        self._held_ms = held_ns // 1_000_000 if spec.has_latency_bound else None

    def process(self, rows: Rows) -> Rows:
        self._take(rows)
        if self._held_ms is not None and self.tick_at_ms is None:
            self.tick_at_ms = self._clock.wall_ms() + self._held_ms
        return self.flush() if len(self._parts) >= self._keys_max else []

    def tick(self, now_ms: int) -> Iterable[Rows]:  # noqa: ARG002 - it is time
        return (self.flush(),)

    def begin_undo(self, rows: Rows) -> Callable[[], None]:
        return kept_entries(self._parts, rows)

    def flush(self) -> Rows:
        rows = list(self._parts.items())
        self._parts.clear()
        self.tick_at_ms = None
        return rows

    def finish(self) -> Iterable[Rows]:
        yield self.flush()

    def _take(self, rows: Rows) -> None:
        try:
            if self._aggregate.kind == "sum":
                accumulate_sums(self._parts, rows)
            else:
                accumulate(self._parts, rows, self._aggregate)
        except TypeError:
            check_keys(list(map(_key, rows)))
            raise


class CountCombineOperator(CombineOperator):
    """A combiner of counts that is fused with the row operators before it."""

    def __init__(self, nodes: tuple[Node, ...], config: Config, clock: Clock) -> None:
        super().__init__(nodes, config, clock)
        counts: Counter[Any] = Counter()
        self.fused = fuse(nodes[:-1], take_keys=partial(_count, counts))
        self._count = self.fused.function
        self._parts = counts

    def _take(self, rows: Rows) -> None:
        self._count(rows)


def _count(counts: Counter[Any], keys: Iterable[Any]) -> None:
    try:
        counts.update(keys)
    except TypeError:
        if isinstance(keys, list):
            check_keys(keys)
        raise


class AggregateOperator(KeyedOperator):
    """One result per key when the input ends."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        spec = nodes[0].spec
        assert isinstance(spec, AggregateByKey)
        self._aggregate = spec.aggregate
        self._is_combined = spec.is_combined

    def process(self, rows: Rows) -> Rows:
        parts = self.touched(rows)
        if self._is_combined:
            accumulate_parts(parts, rows, self._aggregate)
        else:
            accumulate(parts, rows, self._aggregate)
        return []

    def finish(self) -> Iterator[Rows]:
        finish = self._aggregate.finish
        if finish is None:
            return self.leaving()
        return ([(key, finish(p)) for key, p in rows] for rows in self.leaving())


class GlobalAggregateOperator(OneInputOperator):
    """One accumulator over all rows, sent when the input ends.

    In front of the gathering edge it is the combiner (`CombineAll`) and sends the
    accumulator as it is; behind it (`AggregateAll`) it merges them and sends the result.
    """

    state: TaskState
    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, AggregateAll | CombineAll)
        self._aggregate = spec.aggregate
        self._is_last = isinstance(spec, AggregateAll)
        self._is_combined = isinstance(spec, AggregateAll) and spec.is_combined
        self._part: Any = MISSING
        self.state = TaskState(lambda: self._part, self._put)

    def process(self, rows: Rows) -> Rows:
        aggregate = self._aggregate
        if aggregate.kind == "count" and not self._is_combined:
            self._part = len(rows) + (0 if self._part is MISSING else self._part)
            return []
        update = aggregate.merge if self._is_combined else aggregate.update
        assert update is not None
        part = self._part
        rows_iterator = iter(rows)
        if part is MISSING:
            row = next(rows_iterator)
            part = row if self._is_combined else aggregate.first(row)
        self._part = reduce(update, rows_iterator, part)
        return []

    def finish(self) -> Iterable[Rows]:
        if self._part is MISSING:
            return ()
        part, self._part = self._part, MISSING
        if self._is_last and self._aggregate.finish is not None:
            part = self._aggregate.finish(part)
        return ([part],)

    def reset(self) -> None:
        """Forget the accumulator."""
        self._part = MISSING

    def _put(self, values: list[Any]) -> None:
        parts = [part for part in values if part is not MISSING]
        merge = self._aggregate.merge
        if merge is None and len(parts) > 1:
            msg = (
                f"the results so far of {len(parts)} tasks must become one, and the "
                f"aggregate {self._aggregate.name!r} has no `merge`; give it one, or go "
                "on with as many workers as before"
            )
            raise SnapshotError(msg)
        if parts:
            self._part = parts[0] if merge is None else reduce(merge, parts)


class ScanOperator(KeyedOperator):
    """The running aggregate of the key after every row."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        spec = nodes[0].spec
        assert isinstance(spec, Scan)
        self._aggregate = spec.aggregate

    def process(self, rows: Rows) -> Rows:
        first, update, finish = (
            self._aggregate.first,
            self._aggregate.update,
            self._aggregate.finish,
        )
        parts = self.touched(rows)
        result = []
        rows_iterator = iter(rows)
        for key, value in rows_iterator:
            part = update(parts[key], value) if key in parts else first(value)
            parts[key] = part
            made = finish(part) if finish is not None else part
            # What is sent on must not change when the next value comes.
            result.append((key, own_copy(made)))
        return result
