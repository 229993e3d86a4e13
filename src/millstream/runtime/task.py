"""One task: an instance of a stage, from its intake through its operators to its routers.

A task knows nothing of sockets, workers or other tasks.  `run` does a bounded slice of
work and returns; a task whose output is blocked does nothing.

Its life::

    RUNNING --input over, or nobody reads on--> FINISHING --all rows routed--> DRAINING
                                                               --all rows sent--> ENDED
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from millstream.operators.failure import Blame, blame
from millstream.runtime.intake import SourceIntake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.operators.base import Operator, Rows
    from millstream.plan.nodes import Node
    from millstream.plan.stages import Stage
    from millstream.ports import Clock
    from millstream.runtime.intake import Intake
    from millstream.runtime.router import Router

__all__ = ["Task", "TaskFailedError", "TaskPhase"]


_SLICE_NS = 10_000_000
"""After this long the other tasks, the network and the reports get their turn."""


class TaskPhase(Enum):
    """Where a task stands in its life."""

    RUNNING = auto()
    FINISHING = auto()
    DRAINING = auto()
    ENDED = auto()


class TaskFailedError(Exception):
    """A user function raised inside a task; the worker tells the coordinator."""

    def __init__(self, blame: Blame | None, node: Node, position: str) -> None:
        super().__init__(node.name)
        self.blame = blame
        self.node = node
        self.position = position


class Task:
    """An instance of a stage."""

    def __init__(
        self,
        stage: Stage,
        index: int,
        intake: Intake,
        chain: list[Operator],
        routers: list[Router],
        *,
        clock: Clock,
        slice_batches: int,
    ) -> None:
        self.stage = stage
        self.index = index
        self.phase = TaskPhase.RUNNING
        self.rows_in = 0
        self.rows_out = 0
        self.busy_ns = 0
        self.blocked_ns = 0
        self._intake = intake
        self._chain = chain
        self._routers = routers
        self._outputs = [c for router in routers for c in router.channels]
        self._clock = clock
        self._slice_batches = slice_batches
        self._finishing: Iterator[None] = iter(())
        self._now_ns = 0
        self._batch_rows = 0
        self._is_closed = False
        self._blocked_since_ns: int | None = None

    @property
    def idle_until_ns(self) -> int | None:
        """When its source wants to be asked again, if it is idle and may be asked."""
        if self.phase is not TaskPhase.RUNNING or self._blocked_since_ns is not None:
            return None
        if isinstance(self._intake, SourceIntake):
            return self._intake.idle_until_ns
        return None

    def blocked_until_ns(self, now_ns: int) -> int:
        """Return how long its output was blocked in all, the present block included."""
        if self._blocked_since_ns is None:
            return self.blocked_ns
        return self.blocked_ns + now_ns - self._blocked_since_ns

    def run(self, now_ns: int, *, is_held: bool = False) -> bool:
        """Do a slice of work; return whether anything was done.

        `is_held` stops a task whose results wait for the driver.
        """
        if self.phase is TaskPhase.ENDED:
            return False
        self._now_ns = now_ns
        if self.phase is not TaskPhase.DRAINING and (is_held or self._is_blocked()):
            if self._blocked_since_ns is None:
                self._blocked_since_ns = now_ns
            return False
        if self._blocked_since_ns is not None:
            self.blocked_ns += now_ns - self._blocked_since_ns
            self._blocked_since_ns = None
        is_working = self._advance()
        if is_working:
            self.busy_ns += self._clock.monotonic_ns() - now_ns
        return is_working

    def close(self) -> None:
        """Give everything back; safe to call at any time."""
        self._intake.close()
        if not self._is_closed:
            self._is_closed = True
            for operator in self._chain:
                operator.close()

    def _advance(self) -> bool:
        is_working = False
        if self.phase is TaskPhase.RUNNING:
            is_working = self._run_slice()
        elif self.phase is TaskPhase.FINISHING:
            is_working = True
            self._finish_slice()
        if self.phase is TaskPhase.DRAINING:
            is_working |= self._drain()
        return is_working

    def _run_slice(self) -> bool:
        """Take batches until the slice is used up, input is dry or output blocked."""
        for done in range(self._slice_batches):
            if self._is_abandoned():
                self._intake.close()
                self.phase = TaskPhase.DRAINING
                return True
            began_ns = self._clock.monotonic_ns()
            taken = self._take()
            if taken is not None:
                self._process(*taken)
                elapsed_ns = self._clock.monotonic_ns() - began_ns
                self._intake.note_time(len(taken[0]), elapsed_ns)
            if self._is_satisfied():
                self._intake.close()
                self._begin_finish()
                return True
            if taken is None:
                if self._intake.is_over:
                    self._begin_finish()
                    return True
                return done > 0
            if self._is_blocked() or self._is_slice_over():
                return True
        return True

    def _is_slice_over(self) -> bool:
        """Whether slow functions have used the turn up before its batches did."""
        return self._clock.monotonic_ns() - self._now_ns > _SLICE_NS

    def _process(self, rows: Rows, port: int) -> None:
        self._batch_rows = len(rows)
        self.rows_in += len(rows)
        self._push(rows, port, start=0)

    def _is_satisfied(self) -> bool:
        """Whether an operator needs nothing more of the input."""
        for port in self._intake.over_ports():
            for operator in self._chain[:1]:
                operator.end_port(port)
        return any(operator.is_satisfied for operator in self._chain)

    def _take(self) -> tuple[Rows, int] | None:
        try:
            return self._intake.take(self._now_ns)
        except Exception as error:
            node = self.stage.nodes[0]
            position = self._intake.position(None, 0)
            raise TaskFailedError(None, node, position) from error

    def _push(self, rows: Rows, port: int, start: int) -> None:
        """Run rows through the operators from `start` on and route what comes out."""
        for operator in self._chain[start:]:
            if len(rows) == 0:
                return
            try:
                rows = operator.process(rows, port)
            except Exception as error:
                raise self._failure(error, operator, rows) from error
            port = 0
        if len(rows) > 0:
            self._route(rows)

    def _route(self, rows: Rows) -> None:
        self.rows_out += len(rows)
        for router in self._routers:
            try:
                router.route(rows, self._now_ns)
            except Exception as error:
                node = self.stage.nodes[-1]
                text = f"while sending {len(rows)} records on"
                raise TaskFailedError(None, node, text) from error

    def _failure(
        self, error: Exception, operator: Operator, rows: Rows | None
    ) -> TaskFailedError:
        found = blame(error, operator, rows)
        if rows is None:
            position = "after the last record"
        else:
            is_first = operator is self._chain[0]
            index = found.row_index if is_first else None
            position = self._intake.position(index, self._batch_rows)
        return TaskFailedError(found, found.node, position)

    def _begin_finish(self) -> None:
        self.phase = TaskPhase.FINISHING
        self._finishing = self._finish()

    def _finish(self) -> Iterator[None]:
        """Let the operators say their last words, one batch per step."""
        for index, operator in enumerate(self._chain):
            batches = iter(operator.finish())
            while True:
                try:
                    rows = next(batches, None)
                except Exception as error:
                    raise self._failure(error, operator, None) from error
                if rows is None:
                    break
                self._push(rows, 0, start=index + 1)
                yield

    def _finish_slice(self) -> None:
        for _ in range(self._slice_batches):
            if self._is_blocked():
                return
            if next(self._finishing, _END) is _END:
                self.phase = TaskPhase.DRAINING
                return

    def _drain(self) -> bool:
        """Send what is left, then the end, on every channel."""
        for channel in self._outputs:
            channel.flush()
        if self._is_blocked():
            return False
        for channel in self._outputs:
            channel.end()
        self.close()
        self.phase = TaskPhase.ENDED
        return True

    def _is_blocked(self) -> bool:
        is_blocked = False
        for channel in self._outputs:
            if channel.is_blocked:
                channel.send_ready()
                is_blocked |= channel.is_blocked
        return is_blocked

    def _is_abandoned(self) -> bool:
        return bool(self._outputs) and all(c.is_closed for c in self._outputs)


_END: Any = object()
