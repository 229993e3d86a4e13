"""Event time that is the wall clock's: what a window or a join of processing time is.

A row has the time at which it comes, and time comes to where the clock stands.  All rows
of a batch come at the same time.  Time never goes back, not even where the clock does, so
that no row is ever late.

Nothing here knows windows or joins; nothing there knows the clock.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

from millstream.operators.base import (
    OneInputOperator,
    TickingOperator,
    TwoInputOperator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.base import State
    from millstream.values import Batch

__all__ = ["ClockJoinOperator", "ClockWindowOperator", "TimedJoin", "TimedWindow"]

_AT_ONCE = 0


class _Timed(Protocol):
    """What goes by event time and can go by the clock: an operator that knows when."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What it carries out."""
        ...

    @property
    def state(self) -> State | None:
        """What it remembers."""
        ...

    @property
    def is_guarded(self) -> bool:
        """Whether a record that makes it raise may become a dead letter."""
        ...

    @property
    def reached(self) -> int:
        """Nothing of this time or earlier follows."""
        ...

    def next_due(self) -> int | None:
        """Return the time at which it will have something to emit; None for never.

        Rows that come later than others are not due before them.
        """
        ...

    def begin_undo(self, rows: Any) -> Callable[[], None]: ...
    def flush(self) -> Batch: ...
    def advance(self, time: int) -> Iterable[Batch]: ...
    def finish(self) -> Iterable[Batch]: ...
    def reset_after_flush(self) -> None: ...
    def close(self) -> None: ...


class TimedWindow(_Timed, Protocol):
    """A window of event time that can go by the clock."""

    def process_at(self, rows: Any, time: int) -> Batch:
        """Take rows that all come at a time after what was reached."""
        ...

    def reset(self) -> None: ...


class TimedJoin(_Timed, Protocol):
    """A join of event time that can go by the clock."""

    def process_at(self, rows: Any, port: int, time: int) -> Batch:
        """Take rows of one input that all come at a time after what was reached."""
        ...

    def on_input_end(self, port: int) -> None: ...
    def reset(self, ended: frozenset[int]) -> None: ...


class _ClockOperator(TickingOperator):
    """Lets an operator that goes by event time go by the wall clock.

    Parameters
    ----------
    every_ms
        It is called by the clock this often at most.
    """

    def __init__(self, timed: _Timed, clock: Clock, every_ms: float = 0) -> None:
        super().__init__(timed.nodes)
        self.state, self.is_guarded = timed.state, timed.is_guarded
        self._timed = timed
        self._clock = clock
        self._every_ms = ceil(every_ms)
        self._now_ms = self._rest_until_ms = 0
        self.tick_at_ms = _AT_ONCE  # It is not known yet what will be restored.

    def _begin_batch(self) -> int:
        """Return the time of rows that come now."""
        reached = self._timed.reached
        self._now_ms = max(self._now_ms, self._clock.wall_ms(), reached + 1)
        return self._now_ms

    def _end_batch(self) -> None:
        if self.tick_at_ms is None or self.tick_at_ms == _AT_ONCE:
            self._set_tick()

    def begin_undo(self, rows: Batch) -> Callable[[], None]:
        return self._timed.begin_undo(rows)

    def flush(self) -> Batch:
        return self._timed.flush()

    def tick(self, now_ms: int) -> Iterator[Batch]:
        """Yield what follows from time having come to where the clock stands."""
        held = self._timed.flush()
        if len(held) > 0:
            yield held
        yield from self._timed.advance(max(now_ms, self._now_ms) - 1)
        self._rest_until_ms = now_ms + self._every_ms
        self._set_tick()

    def finish(self) -> Iterable[Batch]:
        return self._timed.finish()

    def reset_after_flush(self) -> None:
        self._timed.reset_after_flush()
        self.tick_at_ms = None

    def close(self) -> None:
        self._timed.close()

    def _set_tick(self) -> None:
        due = self._timed.next_due()
        self.tick_at_ms = None if due is None else max(due + 1, self._rest_until_ms)


class ClockWindowOperator(_ClockOperator, OneInputOperator):
    """A window of processing time."""

    def __init__(self, window: TimedWindow, clock: Clock, every_ms: float = 0) -> None:
        super().__init__(window, clock, every_ms)
        self._window = window

    def process(self, rows: Batch) -> Batch:
        made = self._window.process_at(rows, self._begin_batch())
        self._end_batch()
        return made

    def reset(self) -> None:
        """Forget all rows."""
        self._window.reset()
        self.tick_at_ms = None


class ClockJoinOperator(_ClockOperator, TwoInputOperator):
    """A join of processing time."""

    def __init__(self, join: TimedJoin, clock: Clock) -> None:
        super().__init__(join, clock)
        self._join = join

    def process(self, rows: Batch, port: int) -> Batch:
        made = self._join.process_at(rows, port, self._begin_batch())
        self._end_batch()
        return made

    def on_input_end(self, port: int) -> None:
        self._join.on_input_end(port)

    def reset(self, ended: frozenset[int]) -> None:
        """Forget the rows of a round."""
        self._join.reset(ended)
        self.tick_at_ms = None
