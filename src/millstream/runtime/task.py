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

While RUNNING it cuts where its intake says so: it captures the state of its operators,
sends the barrier on and hands the capture to whoever keeps it.  Its final flush is not
cut; a snapshot has either all of them or none.  Where the barrier goes round a loop, the
capture waits for it, and takes what came round before it along.

In the body of an iteration a round is like an input of its own: at its end the operators
flush for the last time, the mark of the end goes on, and they begin anew.  Where the input
itself ends, there is nothing left to say.  Operators of a free loop flush for the last time when
it has become quiet, as these may go round, and go on.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, assert_never

from millstream.errors import RemoteProtocolError
from millstream.plan.iteration import Outlet
from millstream.protocol.barrier import ROUND_END, Barrier, Order
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import Watermark
from millstream.runtime.chain import FAILURES, Chain, TaskFailedError
from millstream.runtime.elements import (
    Batch,
    EndOfInput,
    LoopSealed,
    MarkDue,
    PortEnded,
    ProbeArrived,
    RoundOver,
)
from millstream.runtime.meters import measured
from millstream.runtime.seals import Seals
from millstream.runtime.splits import SplitsTold
from millstream.runtime.task_cut import TaskCut, captured
from millstream.runtime.task_time import TaskTime
from millstream.state.turns import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.operators.base import Operator
    from millstream.plan.stages import Stage
    from millstream.ports import Clock
    from millstream.protocol.barrier import Hops, RoundEnd
    from millstream.protocol.metrics import TaskMetrics
    from millstream.protocol.rounds import RoundsSoFar
    from millstream.runtime.channels import OutputChannel
    from millstream.runtime.elements import Element
    from millstream.runtime.guard import Guard
    from millstream.runtime.intake import Intake
    from millstream.runtime.observer import Observer
    from millstream.runtime.router import Router
    from millstream.state.base import Capture, State

__all__ = ["Task", "TaskPhase"]


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
        chain: list[Operator],
        routers: list[list[Router]],
        *,
        clock: Clock,
        slice_batches: int,
        on_cut: Callable[[TaskCut], None],
        on_end: Callable[[TaskCut], None],
        guard: Guard | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.stage = stage
        self.index = index
        self.phase = TaskPhase.RUNNING
        #: The last epoch that it cut.
        self.epoch = Epoch(0)
        self.busy_ns = 0
        self.blocked_ns = 0
        #: What its last snapshot wrote.
        self.state_bytes = 0
        self.intake = intake
        self._chain = Chain(stage, chain, routers, intake, guard)
        self._time = TaskTime(chain, clock)
        #: What follows from time having passed, to be worked off before anything else.
        self._pending: Iterator[None] | None = None
        self._routers = routers
        self._row_outputs = _channels(routers[: Outlet.END])
        letters = [] if guard is None else guard.router.channels
        self.outputs = [*_channels(routers), *letters]
        self._splits = SplitsTold(self._row_outputs, intake)
        #: A batch that waits until readers can be told which split it comes from.
        self._held: Batch | None = None
        self._clock = clock
        self._slice_batches = slice_batches
        self._on_cut = on_cut
        self._on_end = on_end
        self._observer = observer
        self._is_paused = False
        self._is_pausing = False
        #: Whether it pauses as soon as the barrier has come round.
        self._is_holding = False
        self._resumed_epoch = 0
        #: A cut whose barrier has not come round every loop.
        self._unsealed: TaskCut | None = None
        self._seals = Seals()
        self._finishing: Iterator[None] = iter(())
        self._now_ns = 0
        self._is_closed = False
        #: Whether it ended before the snapshot that it was made of.
        self._had_ended = False
        self._nodes_left = 0
        self._blocked_since_ns: int | None = None

    @property
    def rows_in(self) -> int:
        """How many rows came."""
        return self._chain.rows_in

    @property
    def rows_out(self) -> int:
        """How many rows left."""
        return self._chain.rows_out

    @property
    def idle_until_ns(self) -> int | None:
        """When its source wants to be asked again, if it is idle and may be asked."""
        if self.phase is not TaskPhase.RUNNING or self._blocked_since_ns is not None:
            return None
        times = (self._time.wake_ns(), self.intake.wake_ns())
        return min((ns for ns in times if ns is not None), default=None)

    def blocked_until_ns(self, now_ns: int) -> int:
        """Return how long its output was blocked in all, the present block included.

        That may have begun after the caller looked at the clock.
        """
        since_ns = self._blocked_since_ns
        return self.blocked_ns + (0 if since_ns is None else max(0, now_ns - since_ns))

    def states(self) -> dict[str, State]:
        """Return the states of its operators, by name."""
        own = {_name(o): o.state for o in self._chain.operators if o.state is not None}
        return own | self.intake.states()

    def restored(self, *, is_same_plan: bool) -> None:
        """Note that its states have been filled, by the same tasks of the same plan or not."""
        self._time.restored(self.intake, is_same_plan=is_same_plan)

    @property
    def rounds(self) -> RoundsSoFar | None:
        """How far an iteration has come that is decided over here.

        None if that had ended before: what was told of it then stands.
        """
        return None if self._had_ended else self._chain.rounds

    @property
    def has_ended(self) -> bool:
        """Whether it has done everything, and said so."""
        return self.phase is TaskPhase.ENDED

    def metrics(self, now_ns: int) -> TaskMetrics:
        """Return what it has done so far, and how it stands."""
        return measured(self, self.intake, self.outputs, self._time, now_ns)

    def validate(self) -> None:
        """Assert what its cores promise; asked by tests and by the simulator."""
        self.intake.validate()
        self._chain.validate()

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
        self._resumed_epoch = epoch
        if self.epoch <= epoch:
            self._is_paused = self._is_holding = False
            self.intake.resume()

    def end_at_once(self, *, was_left: bool = False) -> None:
        """Be a task that ended before the snapshot that is restored.

        Its input is closed with its first turn, when those who write it can be told.
        """
        self.phase = TaskPhase.DRAINING
        self._had_ended = True
        self._nodes_left = len(self.stage.nodes) if was_left else 0

    def end_behind(self, spent: int) -> None:
        """Flush for the last time: all but the first operators, which have ended before."""
        if self.intake.has_rounds:
            # Its final flush was that of its last round.
            self.end_at_once()
            return
        over = frozenset(node.id for node in self.stage.nodes[:spent])
        self._begin(self._finish(over))

    def run(self, now_ns: int, *, is_held: bool = False) -> bool:
        """Do a slice of work; return whether anything was done.

        `is_held` stops a task whose results wait for the driver.
        """
        if self.phase is TaskPhase.ENDED:
            return False
        if self._is_paused:
            # What waited for credit still leaves, the barrier behind it.
            self._flush_outputs()
            return False
        self._now_ns = self._chain.now_ns = now_ns
        is_stopped = is_held or not self._flush_outputs()
        if is_stopped and not self._may_run_blocked():
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

    def _may_run_blocked(self) -> bool:
        """Whether it puts out nothing new, so that it need not wait for its readers."""
        return self.phase is TaskPhase.DRAINING or self._is_holding

    def close(self) -> None:
        """Give everything back; safe to call at any time.

        Everybody is closed, whoever raises; the first error is raised in the end.
        """
        if self._is_closed:
            self.intake.close()
            return
        self._is_closed = True
        failures = []
        parts = [(self.intake.close, self.stage.nodes[0])]
        parts += [(o.close, o.nodes[0]) for o in self._chain.operators]
        for close, node in parts:
            try:
                close()
            except FAILURES as error:
                failure = TaskFailedError(None, node, "when it was closed")
                failure.__cause__ = error
                failures.append(failure)
        if failures:
            raise failures[0]

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
        """Take elements until the slice is used up, input is dry or output blocked."""
        for done in range(self._slice_batches):
            if self._leave_off() or self._work_off():
                return True
            began_ns = self._clock.monotonic_ns()
            element = self._take()
            if not self._react(element, began_ns):
                return True
            if self._give_time():
                continue
            if self._stop_early():
                return True
            if element is None:
                return done > 0
            if not self._flush_outputs() or self._is_slice_over():
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
            case Batch():
                return self._process(element, began_ns)
            case None:
                return self._tell_splits()
            case PortEnded(port):
                self._chain.end_input(port)
                return True
            case Barrier():
                self._cut(element)
            case LoopSealed():
                self._seal_loop()
            case Watermark():
                self._time.reached = element.time
                self._pending = self._chain.pass_watermark(element, 0)
            case MarkDue(mark, outlet):
                self._put_marks(outlet, mark)
            case RoundOver() | ProbeArrived() | EndOfInput():
                self._end(element)
            case _:
                assert_never(element)
        return False

    def _process(self, batch: Batch, began_ns: int) -> bool:
        """Run a batch through the operators; hold it while its split cannot be told."""
        if not self._tell_splits():
            self._held = batch
            return False
        self._time.begin_batch(self.intake)
        self._chain.process(batch)
        self.intake.note_time(len(batch.rows), self._clock.monotonic_ns() - began_ns)
        return True

    def _tell_splits(self) -> bool:
        """Tell which split the next batch comes from; return whether that has left."""
        return not self._splits.tell(self.intake) or self._flush_outputs()

    def _give_time(self) -> bool:
        """Send a new watermark of an operator that assigns timestamps, if there is one."""
        given = self._time.given(self.intake, self._now_ns)
        if given is not None:
            self._pending = self._chain.pass_watermark(given[1], given[0] + 1)
        return given is not None

    def _work_off(self) -> bool:
        """Go on with what follows from time having passed, until output is blocked."""
        if self._pending is None:
            ticked = self._time.ticked()
            if ticked is None:
                return False
            self._pending = self._chain.emit_from(*ticked, "when its time had come")
        for _ in range(self._slice_batches):
            if not self._flush_outputs():
                break
            if next(self._pending, _END) is _END:
                self._pending = None
                break
        return True

    def _stop_early(self) -> bool:
        """Finish if an operator needs nothing more of the input."""
        if self.intake.has_rounds:
            return False
        satisfied = [o for o in self._chain.operators if o.is_satisfied]
        if not satisfied:
            return False
        # Those in front of the last one that has enough.
        self._nodes_left = self.stage.nodes.index(satisfied[-1].nodes[0])
        self.intake.close()
        self._begin(self._finish())
        return True

    def _end(self, element: RoundOver | ProbeArrived | EndOfInput) -> None:
        """Let the operators say what follows from the end of the input, or of a round."""
        if not self._tell_splits() or self._give_time():
            # That goes first; the element comes again.
            return
        match element:
            case RoundOver(ended):
                self._begin(self._finish_round(ended))
            case ProbeArrived(mark) if mark.asks_flush:
                self._begin(self._finish_probe(mark))
            case ProbeArrived(mark):
                for index in range(len(self._chain.operators)):
                    self._chain.flush(index)
                self._begin_round(mark)
            case EndOfInput() if self.intake.has_rounds:
                # The final flush was that of the last round.
                self.phase = TaskPhase.DRAINING
            case EndOfInput():
                self._begin(self._finish())

    def _begin_round(self, mark: RoundEnd) -> None:
        """Send the mark behind all rows of a round, and take those of the next one."""
        self._put_marks(0, mark)
        self.intake.begin_round()
        self.phase = TaskPhase.RUNNING

    def _put_marks(self, outlet: int, mark: RoundEnd | Hops) -> None:
        """Send a mark to all who are in the same loop."""
        for router in self._routers[outlet]:
            for output in router.channels:
                if output.channel.edge.carries_rounds:
                    output.put_mark(mark)

    def _cut(self, barrier: Barrier) -> None:
        """Capture the state, front to back, and send the barrier behind all rows."""
        with undisturbed():
            self._capture(barrier)

    def _capture(self, barrier: Barrier) -> None:
        began_ns = self._clock.monotonic_ns()
        captures = []
        for index, operator in enumerate(self._chain.operators):
            self._chain.flush(index)
            if Order.ROLL in barrier.orders:
                operator.roll()
            self._seal(operator, barrier.epoch)
            if operator.state is not None:
                captures.append(captured(_name(operator), operator.state, barrier))
        for name, state in self.intake.states().items():
            captures.append(captured(name, state, barrier))
        for channel in self.outputs:
            channel.put_mark(barrier)
        self.epoch = barrier.epoch
        if self._observer is not None:
            self._observer.captured(self, barrier)
        self._is_pausing = Order.PAUSE in barrier.orders
        self._is_holding = self._is_pausing and barrier.epoch > self._resumed_epoch
        is_sealed = self.intake.release(is_pausing=self._is_holding)
        pause_ns = self._clock.monotonic_ns() - began_ns
        self._unsealed = self._left(tuple(captures), pause_ns)
        if is_sealed:
            self._seal_loop()

    def _seal_loop(self) -> None:
        """Hand the last cut on: its barrier has come round every loop."""
        self._is_holding = False
        cut, self._unsealed = self._unsealed, None
        assert cut is not None
        self._is_paused = self._is_pausing and cut.epoch > self._resumed_epoch
        if self._observer is not None:
            self._observer.sealed(self, cut)
        self._on_cut(cut)

    def _seal(self, operator: Operator, epoch: Epoch) -> None:
        try:
            self._seals.add(operator, epoch)
        except FAILURES as error:
            raise self._chain.failure(error, operator, None) from error

    def _left(
        self, captures: tuple[tuple[str, Capture], ...] = (), pause_ns: int = 0
    ) -> TaskCut:
        return TaskCut(
            self.stage.id,
            self.index,
            self.epoch,
            captures,
            self.intake.offsets(),
            self._seals.taken(),
            pause_ns,
            self._nodes_left,
        )

    def _is_slice_over(self) -> bool:
        """Whether slow functions have used the turn up before its batches did."""
        return self._clock.monotonic_ns() - self._now_ns > _SLICE_NS

    def _begin(self, finishing: Iterator[None]) -> None:
        self.phase = TaskPhase.FINISHING
        self._finishing = finishing

    def _finish(self, over: frozenset[int] = frozenset()) -> Iterator[None]:
        """Flush for the last time, one batch per step: all but operators that are over."""
        self.intake.close()
        yield from self._last_words(over)
        self.phase = TaskPhase.DRAINING

    def _finish_round(self, ended: frozenset[int]) -> Iterator[None]:
        """Flush for the last time in this round."""
        yield from self._last_words()
        for operator in self._chain.operators:
            operator.restart(ended)
        self._begin_round(ROUND_END)

    def _finish_probe(self, mark: RoundEnd) -> Iterator[None]:
        """Flush what would be flushed at the end of a free loop; that may go round."""
        yield from self._last_words()
        for operator in self._chain.operators:
            operator.reset_after_flush()
        self._begin_round(mark)

    def _last_words(self, over: frozenset[int] = frozenset()) -> Iterator[None]:
        """Let the operators flush that come behind all of these nodes."""
        for index, operator in enumerate(self._chain.operators):
            if over.isdisjoint(node.id for node in operator.nodes):
                yield from self._chain.emit_from(index, operator.finish)
                self._seal(operator, Epoch(self.epoch + 1))

    def _finish_slice(self) -> None:
        for _ in range(self._slice_batches):
            if not self._flush_outputs() or next(self._finishing, _END) is _END:
                return

    def _drain(self) -> bool:
        """Send what is left, then the end, on every channel."""
        self.intake.close()
        for channel in self.outputs:
            channel.flush()
        if not self._flush_outputs():
            return False
        for channel in self.outputs:
            channel.end()
        left = self._left()
        self.close()
        self.phase = TaskPhase.ENDED
        if self._observer is not None:
            self._observer.ended(self, left)
        self._on_end(left)
        return True

    def _flush_outputs(self) -> bool:
        """Send what waits for credit; return whether nothing waits any more."""
        is_blocked = False
        for channel in self.outputs:
            if channel.is_blocked:
                channel.send_ready()
                is_blocked |= channel.is_blocked
        return not is_blocked

    def _leave_off(self) -> bool:
        """Take nothing more if nobody reads what it makes; return whether that is so."""
        if not self._is_abandoned():
            return False
        self._nodes_left = len(self.stage.nodes)
        self.intake.close()
        self.phase = TaskPhase.DRAINING
        return True

    def _is_abandoned(self) -> bool:
        """Whether nobody reads what it makes.

        The head of a loop reads no more once it is over, perhaps behind a cut whose
        barrier has not come here; the end comes behind that barrier.
        """
        return bool(self._row_outputs) and all(
            c.is_closed and not c.channel.edge.is_back for c in self._row_outputs
        )


def _channels(routers: list[list[Router]]) -> list[OutputChannel]:
    return [c for some in routers for router in some for c in router.channels]


def _name(operator: Operator) -> str:
    return operator.nodes[-1].name


_END: Any = object()
