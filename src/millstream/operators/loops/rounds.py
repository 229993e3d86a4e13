"""What the heads of iterations hold from round to round, one class per kind.

A head collects its input, gives the body what a round begins with, takes back what the body
made of it, and at the end gives the result.  When it does which is decided elsewhere
(`millstream.protocol.rounds`); nothing here knows channels, or other heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from millstream.plan.frame_windows import HIDDEN
from millstream.plan.iteration import Iteration, IterationKind
from millstream.state.batches import joined
from millstream.state.kept_batches import KeptBatches
from millstream.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from millstream.config import Config
    from millstream.operators.build import TaskContext
    from millstream.protocol.rounds import Decision
    from millstream.state.base import State
    from millstream.state.table import Table
    from millstream.values import Batch, Key

    Judge = Callable[[Value, Value], tuple[Value, bool]]
    """Returns the state of the next round, and whether there need be no other."""

__all__ = [
    "ReturningRound",
    "Round",
    "RoundPart",
    "judge_of",
    "round_of",
]

_BATCH_ROWS = 1024
_value_of = itemgetter(1)

RoundPart = tuple[int, Value]
"""How many rows a head has for the next round, and what they were reduced to."""


class Round(ABC):
    """What one head holds."""

    #: What snapshots store of it.
    state: State

    @abstractmethod
    def collect(self, batch: Any) -> None:
        """Take a batch of the input."""

    def resume(self, number: int, begun: int) -> None:  # noqa: B027 - most do nothing
        """Go on after a recovery, behind the decision of this number.

        What became so before the decision `begun` belongs to an iteration that is over,
        and may have come back only because deltas tell nothing of it.
        """

    @abstractmethod
    def begin(self, decision: Decision) -> Iterator[Batch]:
        """Yield the batches that the round begins with; nothing comes in meanwhile."""

    @abstractmethod
    def result(self, decision: Decision) -> Iterator[Batch]:
        """Yield the result; afterwards it is empty again."""


class ReturningRound(Round):
    """What one head holds, if what the body makes comes back to it."""

    @abstractmethod
    def take_back(self, batch: Any) -> None:
        """Take a batch that the body made."""

    @abstractmethod
    def part(self) -> RoundPart:
        """Return the head's part of what is decided by, at the end of a round."""


class _IterateRound(ReturningRound):
    """The rows that the body made are what the next round begins with."""

    def __init__(
        self, iteration: Iteration, memory_bytes: int, *, has_times: bool
    ) -> None:
        self._reduce = iteration.reduce
        self._has_times = has_times
        self._makes_frames = iteration.makes_frames
        self.state = self._rows = KeptBatches(memory_bytes)
        self._count = 0
        self._reduced: list[Value] = []

    def collect(self, batch: Batch) -> None:
        self._rows.append(batch)

    def begin(self, decision: Decision) -> Iterator[Batch]:  # noqa: ARG002 - no state
        return (kept.load() for kept in self._rows.taken())

    def take_back(self, batch: Batch) -> None:
        self._rows.append(batch)
        self._count += len(batch)
        if self._reduce is not None:
            self._reduced = [self._merged([*self._reduced, self._of_batch(batch)])]

    def part(self) -> RoundPart:
        part = self._count, self._reduced
        self._count, self._reduced = 0, []
        return part

    def result(self, decision: Decision) -> Iterator[Batch]:
        return self.begin(decision)

    def _of_batch(self, batch: Batch) -> Value:
        assert self._reduce is not None
        if isinstance(batch, list):
            values = map(_value_of, batch) if self._has_times else batch
            return reduce(self._reduce, values)
        made = self._reduce(batch.drop(HIDDEN) if self._has_times else batch)
        if not isinstance(made, type(batch)):
            msg = (
                "reduce must return a data frame, such as rows.select(pl.col('x').max()),"
                f" but returned {made!r}"
            )
            raise TypeError(msg)
        return made

    def _merged(self, parts: list[Value]) -> Value:
        assert self._reduce is not None
        return merged_parts(parts, self._reduce, makes_frames=self._makes_frames)


class _CycleRound(Round):
    """The input itself is what every round begins with; it stays where it is.

    Data frames are put together to long ones, once: what a batch costs beside its rows is
    paid in every round.
    """

    def __init__(self, iteration: Iteration, index: int, config: Config) -> None:
        assert iteration.state is not None
        self._shown = iteration.state
        self._index = index
        self._rows_max = config.frame_rows_max if iteration.makes_frames else 0
        self._short: list[Batch] = []
        self._short_rows = 0
        self.state = self._rows = KeptBatches(config.loop_memory_bytes)
        self._rows.before_capture = self._put_together

    def collect(self, batch: Batch) -> None:
        if self._short_rows + len(batch) > self._rows_max:
            self._put_together()
        self._short.append(batch)
        self._short_rows += len(batch)

    def _put_together(self) -> None:
        if self._short:
            rows = joined(self._short)
            self._rows.append(rows if isinstance(rows, list) else rows.rechunk())
        self._short, self._short_rows = [], 0

    def begin(self, decision: Decision) -> Iterator[Batch]:
        self._put_together()
        self._shown.begin(decision.number, decision.value)
        return iter(self._rows)

    def result(self, decision: Decision) -> Iterator[Batch]:
        self._put_together()
        self._rows.clear()
        return iter([[decision.value]] if self._index == 0 else [])


class _DeltaRound(ReturningRound):
    """One value per key; a round begins with the keys whose values became better.

    Beside a value stands the number of the decision before it became so good: those with
    the number of the last decision are what the next round begins with.
    """

    def __init__(self, iteration: Iteration, table: Table) -> None:
        assert iteration.improve is not None
        self._improve = iteration.improve
        self.state = self._table = table
        self._number = 0
        self._changed: dict[Key, None] = {}

    def resume(self, number: int, begun: int) -> None:
        self._number = number
        stale = [key for key, (_, when) in self._table.items() if when < begun]
        entries = self._table.touch(stale)
        for key in stale:
            del entries[key]
        known = self._table.items()
        self._changed = {key: None for key, (_, when) in known if when == number}

    def collect(self, batch: Batch) -> None:
        improve, number, changed = self._improve, self._number, self._changed
        entries = self._table.touch([key for key, _ in batch])
        rows_iterator = iter(batch)
        for key, candidate in rows_iterator:
            entry = entries.get(key)
            better = improve(None if entry is None else entry[0], candidate)
            if better is not None:
                entries[key] = (better, number)
                changed[key] = None

    def begin(self, decision: Decision) -> Iterator[Batch]:
        changed, self._changed = list(self._changed), {}
        self._number = decision.number
        for start in range(0, len(changed), _BATCH_ROWS):
            keys = changed[start : start + _BATCH_ROWS]
            entries = self._table.peek(keys)
            yield [(key, entries[key][0]) for key in keys]

    def take_back(self, batch: Batch) -> None:
        self.collect(batch)

    def part(self) -> RoundPart:
        return len(self._changed), []

    def result(self, decision: Decision) -> Iterator[Batch]:
        self._changed, self._number = {}, decision.number
        rows = ((key, value) for key, (value, _) in self._table.items())
        while batch := list(islice(rows, _BATCH_ROWS)):
            yield batch
        self._table.clear()


def round_of(
    iteration: Iteration, context: TaskContext, *, has_times: bool = False
) -> Round:
    """Return what a head holds; `has_times` says whether its rows do."""
    memory_bytes = context.config.loop_memory_bytes
    match iteration.kind:
        case IterationKind.ITERATE:
            return _IterateRound(iteration, memory_bytes, has_times=has_times)
        case IterationKind.CYCLE:
            return _CycleRound(iteration, context.task_index, context.config)
        case _ if iteration.makes_frames:
            # Polars is imported only where there are data frames.
            from millstream.operators.loops.frame_rounds import FrameDeltaRound  # noqa: PLC0415

            return FrameDeltaRound(iteration, context.config.shard_count)
        case _:
            return _DeltaRound(iteration, context.make_table())


def merged_parts(
    parts: list[Value], function: Callable[..., Value], *, makes_frames: bool
) -> Value:
    """Return one reduction of several; `parts` has at least one."""
    if len(parts) == 1:
        return parts[0]
    return function(joined(parts)) if makes_frames else reduce(function, parts)


def judge_of(iteration: Iteration) -> Judge:
    """Return what decides after a round; see `millstream.protocol.rounds.Decider`."""
    if iteration.kind is IterationKind.CYCLE:
        return _CycleJudge(iteration)
    return _Judge(iteration)


class _Judge:
    """Goes by the reduction of all rows; where there are none, no round can change that."""

    def __init__(self, iteration: Iteration) -> None:
        self._iteration = iteration

    def __call__(self, value: Value, parts: list[RoundPart]) -> tuple[Value, bool]:
        del value
        iteration = self._iteration
        count = sum(count for count, _ in parts)
        if iteration.reduce is None or not count:
            return count, count == 0
        reduced = [part for _, some in parts for part in some]
        made = merged_parts(
            reduced, iteration.reduce, makes_frames=iteration.makes_frames
        )
        return made, iteration.until is not None and bool(iteration.until(made))


class _CycleJudge:
    """Goes by the state that it makes of all results of the round."""

    def __init__(self, iteration: Iteration) -> None:
        self._iteration = iteration

    def __call__(self, value: Value, results: Batch) -> tuple[Value, bool]:
        iteration = self._iteration
        assert iteration.update is not None
        made = iteration.update(value, results)
        if made is None and value is not None:
            msg = "update returned None; it must return the state of the next round"
            raise TypeError(msg)
        return made, iteration.until is not None and bool(iteration.until(made))
