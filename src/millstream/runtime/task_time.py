"""Which operators of a task are to be called because time has passed.

Event time goes on where an operator gives it; wall time at the moment an operator asked
for (`TaskTime`).  What follows from that is worked off by `PassingTime`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.operators.base import TickingOperator, TimedOperator
from millstream.operators.time.assign import TimestampAssigner
from millstream.protocol.watermark import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.operators.base import Operator
    from millstream.ports import Clock
    from millstream.protocol.watermark import Watermark
    from millstream.runtime.chain import Chain
    from millstream.runtime.intake import Intake
    from millstream.runtime.outputs import Outputs
    from millstream.values import Batch

__all__ = ["PassingTime", "TaskTime"]


class TaskTime:
    """The operators of a task that time matters to; none costs nothing."""

    def __init__(self, chain: list[Operator], clock: Clock) -> None:
        #: The last watermark that came, or that an operator gave.
        self.reached = BEGINNING
        self._timed = [o for o in chain if isinstance(o, TimedOperator)]
        self._clock = clock
        self._givers = [
            (i, o) for i, o in enumerate(chain) if isinstance(o, TimestampAssigner)
        ]
        #: Operators that may ask to be called by the clock.
        self._tickers = [
            (i, o) for i, o in enumerate(chain) if isinstance(o, TickingOperator)
        ]

    def wake_ns(self) -> int | None:
        """Return when somebody wants to be called though nothing has come."""
        if not self._givers and not self._tickers:
            return None
        now_ns, wall_ms = self._clock.monotonic_ns(), self._clock.wall_ms()
        times = [giver.wake_ns(now_ns) for _, giver in self._givers]
        waits = [o.tick_at_ms for _, o in self._tickers if o.tick_at_ms is not None]
        times += [now_ns + max(0, ms - wall_ms) * 1_000_000 for ms in waits]
        return min((ns for ns in times if ns is not None), default=None)

    def restored(self, intake: Intake, *, is_same_plan: bool) -> None:
        """Let those who give time keep what still holds for where their rows come from."""
        has_same_origins = is_same_plan or intake.knows_splits
        for _, giver in self._givers:
            origins = intake.open_origins(are_waiting=True)
            if has_same_origins:
                giver.forget_others(origins)
            else:
                giver.begin_anew(origins)

    def begin_batch(self, intake: Intake) -> None:
        """Let those who give time know where the next rows come from."""
        for _, giver in self._givers:
            giver.origin = intake.origin

    def ticked(self) -> tuple[int, Callable[[], Iterable[Batch]]] | None:
        """Return the place of an operator whose time by the clock has come, and a call."""
        waiting = [(i, o) for i, o in self._tickers if o.tick_at_ms is not None]
        if not waiting:
            return None
        now_ms = self._clock.wall_ms()
        for index, operator in waiting:
            assert operator.tick_at_ms is not None
            if operator.tick_at_ms <= now_ms:
                return index, partial(operator.tick, now_ms)
        return None

    def given(self, intake: Intake, now_ns: int) -> tuple[int, Watermark] | None:
        """Return a new watermark, and the place of the operator that makes it."""
        for index, giver in self._givers:
            origins = intake.open_origins(are_waiting=not giver.splits_in_order)
            watermark = giver.due(origins, now_ns)
            if watermark is not None:
                self.reached = watermark.time
                return index, watermark
        return None

    def splits(self, intake: Intake) -> dict[str, int]:
        """Return how far event time has come in each open split, if splits are known."""
        if not self._givers or not intake.knows_splits:
            return {}
        watermarks = self._givers[0][1].watermarks
        origins = intake.open_origins(are_waiting=False)
        return {name: watermarks[name] for name in origins if name in watermarks}

    def progress(self) -> tuple[int, int, int] | None:
        """Return how many rows were late and ahead, and how far event time has come."""
        late = sum(operator.late_count for operator in self._timed)
        if self.reached == BEGINNING and not late and not self._givers:
            return None
        ahead = sum(giver.ahead_count for _, giver in self._givers)
        return late, ahead, self.reached


class PassingTime:
    """What follows from time having passed, to be worked off before anything else."""

    def __init__(
        self, time: TaskTime, intake: Intake, chain: Chain, outputs: Outputs
    ) -> None:
        self._time = time
        self._intake = intake
        self._chain = chain
        self._outputs = outputs
        self._pending: Iterator[None] | None = None

    def pass_on(self, watermark: Watermark) -> None:
        """Let event time go on in all operators: the intake says how far it has come."""
        self._time.reached = watermark.time
        self._pending = self._chain.pass_watermark(watermark, 0)

    def give(self, now_ns: int) -> bool:
        """Let it go on behind an operator that gives time; return whether one does now."""
        given = self._time.given(self._intake, now_ns)
        if given is not None:
            self._pending = self._chain.pass_watermark(given[1], given[0] + 1)
        return given is not None

    def work_off(self, batches_max: int) -> bool:
        """Go on until output is blocked; return whether there was anything to do."""
        if self._pending is None:
            ticked = self._time.ticked()
            if ticked is None:
                return False
            self._pending = self._chain.emit_from(*ticked, "when its time had come")
        for _ in range(batches_max):
            if not self._outputs.flush():
                break
            if next(self._pending, _END) is _END:
                self._pending = None
                break
        return True


_END: Any = object()
