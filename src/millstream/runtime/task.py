"""One task: an instance of a stage, from its intake through its operators to its routers.

A task knows nothing of sockets, workers or other tasks.  `run` does a bounded slice of
work and returns; a task whose output is blocked does nothing.  It takes one element after
the other from its intake, and what follows from each is in `_react`.

Its life::

    RUNNING --input over--> FINISHING --all rows routed--> DRAINING --all sent--> ENDED
     ^   |                     |                               ^
     |   +-- nobody reads on --|-------------------------------+
     +-- end of a round -------+

Where event time has gone on, by a watermark of the intake or by an operator that gives
time, the operators behind learn of it front to back, and what follows is worked off before
anything else is taken.  The same holds for operators that asked to be called by the clock.

While RUNNING it cuts where its intake gives a barrier (`cutter.py`).  Its final flush is not
cut; a snapshot has either all of it or none.

In the body of an iteration a round is like an input of its own: at its end the operators
flush for the last time, the mark of the end goes on, and they begin anew.  Where the input
itself ends, there is nothing left to say.  Operators of a free loop flush for the last time when
it has become quiet, as these may go round, and go on.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, assert_never

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import ROUND_END, Barrier
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import Watermark
from millstream.runtime.chain import FAILURES, Chain, closing_failed
from millstream.runtime.cutter import Cutter
from millstream.runtime.elements import (
    END_OF_INPUT,
    EndOfInput,
    LoopSealed,
    MarkDue,
    PortEnded,
    ProbeArrived,
    RoundOver,
    TakenBatch,
)
from millstream.runtime.occupancy import Occupancy
from millstream.runtime.outputs import Outputs
from millstream.runtime.splits import SplitsWriter
from millstream.runtime.task_time import PassingTime, TaskTime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.operators.base import Operator
    from millstream.plan.stages import Stage
    from millstream.ports import Clock
    from millstream.protocol.barrier import RoundEnd
    from millstream.protocol.rounds import RoundsSoFar
    from millstream.runtime.elements import Element
    from millstream.runtime.guard import Guard
    from millstream.runtime.intake import Intake
    from millstream.runtime.observer import Observer
    from millstream.runtime.router import Router
    from millstream.runtime.task_cut import TaskCut
    from millstream.state.base import State

__all__ = ["Task", "TaskPhase"]


_NO_EPOCH = Epoch(0)
_SLICE_NS = 10_000_000
"""After this long the other tasks, the network and the reports get their turn."""


class TaskPhase(Enum):
    """Where a task stands in its life."""

    RUNNING = auto()
    FINISHING = auto()
    DRAINING = auto()
    ENDED = auto()


class Task:
    """An instance of a stage.

    Parameters
    ----------
    on_cut, on_end
        Take what the task leaves at a cut, and at its end.
    epoch
        The one that it begins behind.
    guard
        Takes records that make a function raise; without it the task fails.
    observer
        Looks on at cuts and at the end; in a real job nobody does.
    """

    def __init__(
        self,
        stage: Stage,
        index: int,
        intake: Intake,
        operators: list[Operator],
        routers: list[list[Router]],
        *,
        clock: Clock,
        slice_batches: int,
        on_cut: Callable[[TaskCut], None],
        on_end: Callable[[TaskCut], None],
        epoch: Epoch = _NO_EPOCH,
        guard: Guard | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.stage = stage
        self.index = index
        self.phase = TaskPhase.RUNNING
        self.occupancy = Occupancy()
        #: What its last snapshot wrote.
        self.state_bytes = 0
        self.intake = intake
        self.chain = Chain(stage, operators, routers, intake, guard)
        self.outputs = Outputs(routers, None if guard is None else guard.router)
        self.time = TaskTime(operators, clock)
        self._passing = PassingTime(self.time, intake, self.chain, self.outputs)
        self._splits = SplitsWriter(self.outputs, intake)
        #: A batch that waits until readers can be told which split it comes from.
        self._held: TakenBatch | None = None
        self._cutter = Cutter(
            (stage.id, index), epoch, intake, self.chain, self.outputs,
            clock=clock, on_cut=on_cut, observer=observer,
        )  # fmt: skip
        self._clock = clock
        self._slice_batches = slice_batches
        self._on_end = on_end
        self._observer = observer
        self._finishing: Iterator[None] = iter(())
        self._now_ns = 0
        self._is_closed = False
        #: Whether it ended before the snapshot that it was made of.
        self._had_ended = False

    # What is known of it

    @property
    def epoch(self) -> Epoch:
        """The last epoch that it cut."""
        return self._cutter.epoch

    @property
    def has_ended(self) -> bool:
        """Whether it has done everything, and said so."""
        return self.phase is TaskPhase.ENDED

    @property
    def idle_until_ns(self) -> int | None:
        """When it wants to have a turn though nothing has come, if it may have one."""
        if self.phase is not TaskPhase.RUNNING or self.occupancy.is_blocked:
            return None
        times = (self.time.wake_ns(), self.intake.wake_ns())
        return min((ns for ns in times if ns is not None), default=None)

    @property
    def rounds(self) -> RoundsSoFar | None:
        """How far an iteration has come that is decided over here.

        None if that had ended before: what was told of it then stands.
        """
        return None if self._had_ended else self.chain.rounds

    def states(self) -> dict[str, State]:
        """Return the states of its operators, by name."""
        states = {o.nodes[-1].name: o.state for o in self.chain.operators}
        own = {name: state for name, state in states.items() if state is not None}
        return own | self.intake.states()

    def validate(self) -> None:
        """Assert what its cores promise; asked by tests and by the simulator."""
        self.intake.validate()
        self.chain.validate()

    # What it is told

    def announce(self, barrier: Barrier) -> None:
        """Note that an epoch is open; only sources and deciders learn of it this way."""
        if self.phase in {TaskPhase.RUNNING, TaskPhase.FINISHING}:
            self.intake.announce(barrier)

    def complete(self, epoch: Epoch) -> None:
        """Note that an epoch is complete."""
        if self.phase is not TaskPhase.ENDED:
            for state in self.states().values():
                state.complete(epoch)

    def resume(self, epoch: Epoch) -> None:
        """Go on after the pause at this epoch, which may not have come here yet."""
        self._cutter.resume(epoch)

    def end_at_once(self, *, was_left: bool = False) -> None:
        """Be a task that ended before the snapshot that is restored.

        Its input is closed with its first turn, when those who write it can be told.
        """
        self.phase = TaskPhase.DRAINING
        self._had_ended = True
        self._cutter.nodes_left = len(self.stage.nodes) if was_left else 0

    def end_behind(self, spent: int) -> None:
        """Flush for the last time: all but the first operators, which have ended before."""
        if self.intake.has_rounds:
            # Its final flush was that of its last round.
            self.end_at_once()
            return
        over = frozenset(node.id for node in self.stage.nodes[:spent])
        self.phase = TaskPhase.FINISHING
        self._finishing = self._finish(END_OF_INPUT, over)

    def close(self) -> None:
        """Give everything back; safe to call at any time.

        Everybody is closed, whoever raises; the first error is raised in the end.
        """
        failures = []
        try:
            self.intake.close()
        except FAILURES as error:
            failures.append(closing_failed(error, self.stage.nodes[0]))
        if not self._is_closed:
            self._is_closed = True
            failures += self.chain.close()
        if failures:
            raise failures[0]

    # What it does

    def run(self, now_ns: int, *, is_held: bool = False) -> bool:
        """Do a slice of work; return whether anything was done.

        `is_held` stops a task whose results wait for the driver.
        """
        if self.phase is TaskPhase.ENDED:
            return False
        if self._cutter.is_paused:
            # What waited for credit still leaves, the barrier behind it.
            self.outputs.flush()
            return False
        self._now_ns = self.chain.now_ns = now_ns
        is_stopped = is_held or not self.outputs.flush()
        # Who puts out nothing new need not wait for readers.
        is_silent = self.phase is TaskPhase.DRAINING or self._cutter.is_holding
        if is_stopped and not is_silent:
            self.occupancy.block(now_ns)
            return False
        self.occupancy.unblock(now_ns)
        is_working = self._advance()
        if is_working:
            self.occupancy.busy_ns += self._clock.monotonic_ns() - now_ns
        return is_working

    def _advance(self) -> bool:
        is_working = False
        if self.phase is TaskPhase.RUNNING:
            is_working = self._run_slice()
        elif self.phase is TaskPhase.FINISHING:
            is_working = True
            for _ in range(self._slice_batches):
                if not self.outputs.flush() or next(self._finishing, _END) is _END:
                    break
        if self.phase is TaskPhase.DRAINING:
            is_working |= self._drain()
        return is_working

    def _run_slice(self) -> bool:
        """Take elements until the slice is used up, input is dry or output blocked."""
        for done in range(self._slice_batches):
            if self._leave_off() or self._passing.work_off(self._slice_batches):
                return True
            began_ns = self._clock.monotonic_ns()
            element = self._take()
            if not self._react(element, began_ns):
                return True
            if self._passing.give(self._now_ns):
                continue
            if self._stop_early():
                return True
            if element is None:
                return done > 0
            has_time = self._clock.monotonic_ns() - self._now_ns <= _SLICE_NS
            if not self.outputs.flush() or not has_time:
                return True
        return True

    def _take(self) -> Element | None:
        if self._held is not None:
            batch, self._held = self._held, None
            return batch
        try:
            return self.intake.take(self._now_ns)
        except RemoteProtocolError:
            raise
        except FAILURES as error:
            raise self.intake.failure(error, self.stage.nodes[0]) from error

    def _react(self, element: Element | None, began_ns: int) -> bool:
        """Do what follows from an element; return whether the slice may go on."""
        match element:
            case TakenBatch():
                return self._process(element, began_ns)
            case None:
                return self._splits.tell()
            case PortEnded(port):
                self.chain.end_input(port)
                return True
            case Barrier():
                self._cutter.cut(element)
            case LoopSealed():
                self._cutter.hand_on()
            case Watermark():
                self._passing.pass_on(element)
            case MarkDue(mark, outlet):
                self.outputs.put_mark(outlet, mark)
            case RoundOver() | ProbeArrived() | EndOfInput():
                self._end(element)
            case _:
                assert_never(element)
        return False

    def _process(self, batch: TakenBatch, began_ns: int) -> bool:
        """Run a batch through the operators; hold it while its split cannot be told."""
        if not self._splits.tell():
            self._held = batch
            return False
        self.time.begin_batch(self.intake)
        self.chain.process(batch)
        self.intake.note_time(len(batch.rows), self._clock.monotonic_ns() - began_ns)
        return True

    def _end(self, element: RoundOver | ProbeArrived | EndOfInput) -> None:
        """Begin to finish, at the end of the input, of a round, or where a probe asks."""
        if not self._splits.tell() or self._passing.give(self._now_ns):
            # That goes first; the element comes again.
            return
        if isinstance(element, EndOfInput) and self.intake.has_rounds:
            # The final flush was that of the last round.
            self.phase = TaskPhase.DRAINING
        elif isinstance(element, ProbeArrived) and not element.mark.asks_flush:
            self.chain.flush_all()
            self._begin_round(element.mark)
        else:
            self.phase = TaskPhase.FINISHING
            self._finishing = self._finish(element)

    def _finish(
        self,
        element: RoundOver | ProbeArrived | EndOfInput,
        over: frozenset[int] = frozenset(),
    ) -> Iterator[None]:
        """Let the operators flush for the last time, one batch per step, and go on.

        Nodes in `over` had ended before the snapshot that is restored.
        """
        if isinstance(element, EndOfInput):
            self.intake.close()
        yield from self.chain.finish(self._cutter.seal_last, over)
        match element:
            case RoundOver(ended):
                self.chain.reset(ended)
                self._begin_round(ROUND_END)
            case ProbeArrived(mark):
                self.chain.reset_after_flush()
                self._begin_round(mark)
            case EndOfInput():
                self.phase = TaskPhase.DRAINING

    def _begin_round(self, mark: RoundEnd) -> None:
        """Send the mark behind all rows of a round, and take those of the next one."""
        self.outputs.put_mark(0, mark)
        self.intake.begin_round()
        self.phase = TaskPhase.RUNNING

    def _stop_early(self) -> bool:
        """Finish if an operator needs nothing more of the input."""
        satisfied = self.chain.satisfied()
        if not satisfied or self.intake.has_rounds:
            return False
        # Those in front of the last one that has enough.
        self._cutter.nodes_left = self.stage.nodes.index(satisfied[-1].nodes[0])
        self.intake.close()
        self.phase = TaskPhase.FINISHING
        self._finishing = self._finish(END_OF_INPUT)
        return True

    def _leave_off(self) -> bool:
        """Take nothing more if nobody reads what it makes; return whether that is so."""
        if not self.outputs.are_abandoned:
            return False
        self._cutter.nodes_left = len(self.stage.nodes)
        self.intake.close()
        self.phase = TaskPhase.DRAINING
        return True

    def _drain(self) -> bool:
        """Send what is left, then the end, on every channel."""
        self.intake.close()
        if not self.outputs.drain():
            return False
        self.outputs.end()
        left = self._cutter.left()
        self.close()
        self.phase = TaskPhase.ENDED
        if self._observer is not None:
            self._observer.ended(left)
        self._on_end(left)
        return True


_END: Any = object()
