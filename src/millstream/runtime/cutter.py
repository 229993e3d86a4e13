"""Where a task cuts: it captures, sends the barrier on, and hands over what it captured.

The state of its operators is captured front to back, behind what they held back only to save
work.  Where the barrier goes round a loop, the capture waits for it, and takes what came
round before it along.  A cut that pauses stops the task until the coordinator lets it go on.

When a cut is due is the business of the intake, where captures are stored of whoever takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.barrier import Order
from millstream.protocol.ids import Epoch
from millstream.runtime.chain import FAILURES
from millstream.runtime.seals import Seals
from millstream.runtime.task_cut import TaskCut, captured
from millstream.state.turns import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.operators.base import Operator
    from millstream.ports import Clock
    from millstream.protocol.barrier import Barrier
    from millstream.runtime.chain import Chain
    from millstream.runtime.intake import Intake
    from millstream.runtime.observer import Observer
    from millstream.runtime.outputs import Outputs
    from millstream.state.base import Capture

__all__ = ["Cutter"]


class Cutter:
    """Cuts one task.

    Parameters
    ----------
    task
        Its stage and index.
    epoch
        The one that it was made of.
    on_cut
        Takes what the task leaves at a cut.
    """

    def __init__(
        self,
        task: tuple[int, int],
        epoch: Epoch,
        intake: Intake,
        chain: Chain,
        outputs: Outputs,
        *,
        clock: Clock,
        on_cut: Callable[[TaskCut], None],
        observer: Observer | None,
    ) -> None:
        #: The last epoch that was cut.
        self.epoch = epoch
        #: Whether the task stands still behind a cut.
        self.is_paused = False
        #: Whether it will as soon as the barrier has come round; until then nothing leaves.
        self.is_holding = False
        #: How many operators, from the first on, ended because nobody read what they made.
        self.nodes_left = 0
        self._task = task
        self._intake = intake
        self._chain = chain
        self._outputs = outputs
        self._clock = clock
        self._on_cut = on_cut
        self._observer = observer
        self._is_pausing = False
        self._resumed_epoch = 0
        #: A cut whose barrier has not come round every loop.
        self._unsealed: TaskCut | None = None
        self._seals = Seals(chain.operators)

    def cut(self, barrier: Barrier) -> None:
        """Capture the state, front to back, and send the barrier behind all rows."""
        with undisturbed():
            self._capture(barrier)

    def _capture(self, barrier: Barrier) -> None:
        began_ns = self._clock.monotonic_ns()
        captures = []
        for index, operator in enumerate(self._chain.operators):
            self._chain.flush(index)
            self._seal(operator, barrier.epoch, rolls=Order.ROLL in barrier.orders)
            if operator.state is not None:
                name = operator.nodes[-1].name
                captures.append(captured(name, operator.state, barrier))
        for name, state in self._intake.states().items():
            captures.append(captured(name, state, barrier))
        self._outputs.put_barrier(barrier)
        self.epoch = barrier.epoch
        if self._observer is not None:
            self._observer.captured(self._task, barrier)
        self._is_pausing = Order.PAUSE in barrier.orders
        self.is_holding = self._is_pausing and barrier.epoch > self._resumed_epoch
        is_sealed = self._intake.release(is_pausing=self.is_holding)
        pause_ns = self._clock.monotonic_ns() - began_ns
        self._unsealed = self.left(tuple(captures), pause_ns)
        if is_sealed:
            self.hand_on()

    def hand_on(self) -> None:
        """Hand the last cut on: its barrier has come round every loop."""
        self.is_holding = False
        cut, self._unsealed = self._unsealed, None
        assert cut is not None
        self.is_paused = self._is_pausing and cut.epoch > self._resumed_epoch
        if self._observer is not None:
            self._observer.sealed(cut)
        self._on_cut(cut)

    def resume(self, epoch: Epoch) -> None:
        """Go on after the pause at this epoch, which may not have come here yet."""
        self._resumed_epoch = epoch
        if self.epoch <= epoch:
            self.is_paused = self.is_holding = False
            self._intake.resume()

    def seal_last(self, operator: Operator) -> None:
        """Let an operator seal what it wrote after the last cut."""
        self._seal(operator, Epoch(self.epoch + 1))

    def left(
        self, captures: tuple[tuple[str, Capture], ...] = (), pause_ns: int = 0
    ) -> TaskCut:
        """Return what the task leaves at a cut, or at its end."""
        stage, index = self._task
        return TaskCut(
            stage,
            index,
            self.epoch,
            captures,
            self._intake.offsets(),
            self._seals.taken(),
            pause_ns,
            self.nodes_left,
        )

    def _seal(self, operator: Operator, epoch: Epoch, *, rolls: bool = False) -> None:
        try:
            self._seals.add(operator, epoch, rolls=rolls)
        except FAILURES as error:
            raise self._chain.failure(error, operator, None) from error
