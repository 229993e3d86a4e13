"""One stateful function alone: scripted records, watermarks and a clock set by hand.

The function runs in the operator that a task would run it in, with a table of state
like that of a job that takes snapshots; there are no tasks, channels or workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api.building import user_location
from millstream.errors import UsageError
from millstream.operators.rows.processing import ProcessOperator
from millstream.operators.rows.timers import EVENT, PROCESSING, Timer, times_of
from millstream.plan.logical import Node
from millstream.plan.nodes import Process
from millstream.plan.time import LateTimestamp, milliseconds
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import BEGINNING
from millstream.state.base import ALL_SHARDS
from millstream.state.settings import StateSettings
from millstream.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from millstream.api.functions import StatefulFunction
    from millstream.plan.time import Duration, LateRow
    from millstream.state.base import Segment

__all__ = ["FunctionHarness", "HarnessSnapshot"]

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - output

_SHARD_COUNT = 1024


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """All that a function remembered at one moment."""

    segments: tuple[Segment, ...]
    watermark: int


class FunctionHarness(Generic[K, V, O]):
    """Calls a stateful function as a task would, for what a test tells it.

    Parameters
    ----------
    timed
        Whether records have timestamps.
    in_time_order
        Whether records wait for watermarks, as for `process`.
    clock
        Processing time; by default a clock that begins at 0.
    state_backend
        ``"memory"`` or ``"rocksdb"``, as for a flow.

    Attributes
    ----------
    output
        Pairs of key and value: all that the function has returned so far.
    timestamps
        Where records have timestamps, those of the output.
    late
        What came too late for its order in time.

    Examples
    --------
    >>> import millstream as ms
    >>> from millstream.testing import FunctionHarness
    >>> class Quiet(ms.StatefulFunction):
    ...     due = ms.ValueState()
    ...
    ...     def on_record(self, key, value):
    ...         if self.due.exists():
    ...             self.timers.cancel_processing_time(self.due.get())
    ...         self.due.update(self.timers.after("10s"))
    ...
    ...     def on_timer(self, key, timer):
    ...         self.due.clear()
    ...         yield "quiet"
    >>> harness = FunctionHarness(Quiet())
    >>> harness.record("a", 1)
    []
    >>> harness.advance("9s")
    []
    >>> harness.record("a", 2)
    []
    >>> harness.advance("10s")
    [('a', 'quiet')]
    >>> harness.keys()
    []
    """

    def __init__(
        self,
        function: StatefulFunction[K, V, O],
        *,
        timed: bool = False,
        in_time_order: bool = False,
        clock: ManualClock | None = None,
        state_backend: Literal["memory", "rocksdb"] = "memory",
    ) -> None:
        self.clock = clock or ManualClock()
        self.output: list[tuple[K, O]] = []
        self.timestamps: list[int] = []
        self.late: list[LateRow] = []
        self._is_timed = timed = timed or in_time_order
        self._settings = StateSettings(_SHARD_COUNT, state_backend)
        self._node = Node(
            0,
            "process",
            "process",
            Process(function, in_time_order),
            (),
            user_location(),
            takes_pairs=True,
            takes_times=timed,
            makes_times=timed,
        )
        self._watermark = BEGINNING
        self._epoch = 0
        self._has_ended = False
        self._operator = self._made()

    def record(
        self, key: K, value: V, timestamp: int | None = None
    ) -> list[tuple[K, O]]:
        """Let a record come; return what the function returns for it, with its key.

        A timestamp that is not after the last watermark makes it a late one.
        """
        self._refuse_after_end()
        if self._is_timed != (timestamp is not None):
            need = "takes records with" if self._is_timed else "takes no"
            msg = f"the harness {need} timestamps, got timestamp={timestamp!r}"
            raise UsageError(msg)
        if timestamp is None:
            return self._take([self._operator.process([(key, value)])])
        if timestamp <= self._watermark:
            timestamp = LateTimestamp(timestamp, self._watermark)
        return self._take([self._operator.process([(key, (timestamp, value))])])

    def watermark(self, time: int) -> list[tuple[K, O]]:
        """Let event time come to `time`; return what the function says to that."""
        self._refuse_after_end()
        if not self._is_timed:
            msg = "the harness has no event time; make it with timed=True"
            raise UsageError(msg)
        if time < self._watermark:
            msg = f"the watermark {time} is before {self._watermark}; it never falls"
            raise UsageError(msg)
        self._watermark = time
        return self._take(self._operator.advance(time))

    def advance(self, duration: Duration) -> list[tuple[K, O]]:
        """Let time pass on the clock; return what the function says meanwhile.

        Every timer fires when the clock shows its time.
        """
        self._refuse_after_end()
        end_ms = self.clock.wall_ms() + milliseconds(duration)
        made = []
        while (due := self._operator.tick_at_ms) is not None and due <= end_ms:
            self._wait_until(due)
            made += self._take(self._operator.tick(self.clock.wall_ms()))
        self._wait_until(end_ms)
        return made

    def end(self) -> list[tuple[K, O]]:
        """Let the input end; return what the function says to that."""
        self._refuse_after_end()
        self._has_ended = True
        return self._take(self._operator.finish())

    def snapshot(self) -> HarnessSnapshot:
        """Return what a job would store of the function at this moment."""
        assert self._operator.state is not None
        self._epoch += 1
        capture = self._operator.state.capture(Epoch(self._epoch), Epoch(0))
        return HarnessSnapshot(tuple(capture.segments("process", 0)), self._watermark)

    def restore(self, snapshot: HarnessSnapshot) -> None:
        """Go on with a new instance of the function and what was stored.

        The clock goes on, too; what was put out stays.
        """
        self.close()
        self._operator = self._made()
        assert self._operator.state is not None
        self._operator.state.restore(snapshot.segments, ALL_SHARDS)
        self._watermark, self._epoch = snapshot.watermark, 0
        self._has_ended = False

    def keys(self) -> list[K]:
        """Return the keys that have state or timers."""
        return [key for key, _ in self._operator.table.items()]

    def state(self, key: K) -> dict[str, Any]:
        """Return what is kept under the names of the handles of a key."""
        return {n: value for n, value in self._entry(key).items() if type(n) is str}

    def timers(self, key: K) -> list[Timer]:
        """Return the timers of a key in the order of their times."""
        entry = self._entry(key)
        kinds = (EVENT, PROCESSING)
        timers = [Timer(time, kind) for kind in kinds for time in times_of(entry, kind)]
        return sorted(timers, key=lambda timer: (timer.time, timer.kind))

    def close(self) -> None:
        """Call `close` of the function."""
        self._operator.close()

    def _made(self) -> ProcessOperator:
        return ProcessOperator((self._node,), self._settings.make_table(), self.clock)

    def _entry(self, key: K) -> dict[Any, Any]:
        entry: dict[Any, Any] = self._operator.table.peek([key]).get(key, {})
        return entry

    def _wait_until(self, time_ms: int) -> None:
        wait_ms = max(0, time_ms - self.clock.wall_ms())
        self.clock.advance(timedelta(milliseconds=wait_ms))

    def _take(self, batches: Iterable[list[Any]]) -> list[tuple[K, O]]:
        rows = [row for batch in batches for row in batch]
        if self._is_timed:
            self.timestamps += [int(timestamp) for _, (timestamp, _) in rows]
            rows = [(key, value) for key, (_, value) in rows]
        self.output += rows
        self.late += self._operator.late
        self._operator.late = []
        return rows

    def _refuse_after_end(self) -> None:
        if self._has_ended:
            msg = "the input of the harness has ended; make another one"
            raise UsageError(msg)
