"""The operators of a task one behind the other, from a batch to the routers.

A chain does what it is told at once; when that is, and whether there is room for what
comes out, is the business of its task.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.operators.base import (
    EarlyEndingOperator,
    OneInputOperator,
    TimedOperator,
    TwoInputOperator,
)
from millstream.operators.failure import blame, blame_key, is_one_to_one
from millstream.operators.loops.deciding import FreeLoopDecider, RoundDecider
from millstream.operators.time.assign import TimestampAssigner
from millstream.plan.iteration import Outlet
from millstream.plan.nodes import Combine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.operators.base import Operator
    from millstream.operators.failure import Blame
    from millstream.plan.logical import Node
    from millstream.plan.stages import Stage
    from millstream.protocol.rounds import RoundsSoFar
    from millstream.protocol.watermark import Watermark
    from millstream.runtime.elements import TakenBatch
    from millstream.runtime.guard import Guard, Guarded
    from millstream.runtime.intake import Intake
    from millstream.runtime.router import Router
    from millstream.values import Batch

    _Step = tuple[Operator, Callable[[Batch], Batch], TimedOperator | None]
    """An operator, what it does to a batch, and itself if it may have late rows."""

__all__ = ["FAILURES", "Chain", "TaskFailedError", "closing_failed"]

FAILURES = (Exception, SystemExit)
"""What counts as an error of a user's function; Ctrl-C is not one."""


class TaskFailedError(Exception):
    """A user function raised inside a task; the worker tells the coordinator."""

    def __init__(self, blame: Blame | None, node: Node, position: str) -> None:
        super().__init__(node.name)
        self.blame = blame
        self.node = node
        self.position = position


def closing_failed(error: BaseException, node: Node) -> TaskFailedError:
    """Return what tells the coordinator that something could not be closed."""
    failure = TaskFailedError(None, node, "when it was closed")
    failure.__cause__ = error
    return failure


class Chain:
    """The operators of one task.

    Parameters
    ----------
    routers
        By outlet; all but heads of iterations have one, and one for what is late.
    guard
        Takes records that make a function raise; without it the task fails.
    """

    def __init__(
        self,
        stage: Stage,
        operators: list[Operator],
        routers: list[list[Router]],
        intake: Intake,
        guard: Guard | None,
    ) -> None:
        self.operators = operators
        #: The time of the present slice of work.
        self.now_ns = 0
        self.rows_in = 0
        self.rows_out = 0
        self._stage = stage
        self._routers = routers
        self._intake = intake
        self._guard = guard
        self._cores = [o for o in operators if isinstance(o, FreeLoopDecider)]
        self._batch_rows = 0
        #: Those that may have enough before their input ends.
        self._early_ending = [
            o for o in operators if isinstance(o, EarlyEndingOperator)
        ]
        self._deciders = [o for o in operators if isinstance(o, RoundDecider)]
        self._one_input = [o for o in operators if isinstance(o, OneInputOperator)]
        self._two_input = [o for o in operators if isinstance(o, TwoInputOperator)]
        assert self._two_input in ([], operators[:1]), "only the first has two inputs"
        #: The places of those that give time, behind which that of the input ends.
        self._assigners = {
            i for i, o in enumerate(operators) if isinstance(o, TimestampAssigner)
        }
        self._steps = self._steps_of(0)
        self._steps_by_port = {0: self._steps}

    def _steps_of(self, port: int) -> list[_Step]:
        """Return what happens to a batch that comes on a port."""
        steps: list[_Step] = []
        for operator in self.operators:
            process: Callable[[Batch], Batch]
            if isinstance(operator, TwoInputOperator):
                process = partial(operator.process, port=port)
            else:
                assert isinstance(operator, OneInputOperator), type(operator)
                process = operator.process
            if self._guard is not None and operator.is_guarded:
                guarded = self._guard.around(operator, process)
                process = partial(self._guarded, guarded, operator)
            timed = operator if isinstance(operator, TimedOperator) else None
            steps.append((operator, process, timed))
        return steps

    @property
    def rounds(self) -> RoundsSoFar | None:
        """How far an iteration has come that is decided over here."""
        return self._deciders[0].rounds if self._deciders else None

    def process(self, batch: TakenBatch) -> None:
        """Run a batch of the intake through all operators."""
        rows, port, outlet = batch
        self._batch_rows = len(rows)
        self.rows_in += len(rows)
        steps = self._steps_by_port.get(port)
        if steps is None:
            steps = self._steps_by_port[port] = self._steps_of(port)
        self._run(rows, steps, outlet)

    def validate(self) -> None:
        """Assert what the core of a loop promises that is decided over here."""
        for core in self._cores:
            core.validate()

    def _run(self, rows: Batch, steps: list[_Step], outlet: int = 0) -> None:
        """Run rows through operators and route what comes out."""
        for operator, process, timed in steps:
            if len(rows) == 0:
                return
            try:
                rows = process(rows)
            except FAILURES as error:
                raise self.failure(error, operator, rows) from error
            if timed is not None and len(timed.late) > 0:
                self._send_late(timed)
        if len(rows) > 0:
            self._route(rows, outlet)

    def _guarded(self, guarded: Guarded, operator: Operator, rows: Batch) -> Batch:
        is_first = operator is self.operators[0]

        def locate(index: int | None) -> str:
            return self._intake.position(index if is_first else None, self._batch_rows)

        return guarded.process(rows, self.now_ns, locate)

    def _route(self, rows: Batch, outlet: int) -> None:
        self.rows_out += len(rows)
        for router in self._routers[outlet]:
            try:
                if self._guard is not None and router.is_guarded:
                    last = self._stage.nodes[-1]
                    self._guard.route(router, rows, self.now_ns, last)
                else:
                    router.route(rows, self.now_ns)
            except TaskFailedError:
                raise
            except FAILURES as error:
                raise self._unsent(error, rows) from error

    def _unsent(self, error: BaseException, rows: Batch) -> TaskFailedError:
        """Return what tells the coordinator which record could not be sent on."""
        nodes = self._stage.nodes
        found = blame_key(error, nodes, rows)
        text = f"while sending {len(rows)} records on"
        if found is None:
            return TaskFailedError(None, nodes[-1], text)
        is_combined = isinstance(nodes[-1].spec, Combine)
        is_batch = is_one_to_one(nodes) and len(rows) == self._batch_rows
        if is_batch and not is_combined:
            text = self._intake.position(found.row_index, len(rows))
        return TaskFailedError(found, found.node, text)

    def failure(
        self,
        error: BaseException,
        operator: Operator,
        rows: Batch | None,
        occasion: str | None = None,
    ) -> TaskFailedError:
        """Return what tells the coordinator who raised, and about which record.

        `occasion` says when that was, where it was about none.
        """
        found = blame(error, operator, rows, self._stage.nodes)
        if rows is None:
            has_rounds = self._intake.has_rounds
            end = "at the end of a round" if has_rounds else "after the last record"
            position = occasion or end
        else:
            is_first = operator is self.operators[0]
            index = found.row_index if is_first else None
            position = self._intake.position(index, self._batch_rows)
        return TaskFailedError(found, found.node, position)

    def satisfied(self) -> list[EarlyEndingOperator]:
        """Return the operators that need nothing more of the input."""
        return [operator for operator in self._early_ending if operator.is_satisfied]

    def finish(
        self, seal: Callable[[Operator], None], over: frozenset[int] = frozenset()
    ) -> Iterator[None]:
        """Let the operators flush for the last time that come behind all nodes in `over`."""
        for index, operator in enumerate(self.operators):
            if over.isdisjoint(node.id for node in operator.nodes):
                yield from self.emit_from(index, operator.finish)
                seal(operator)

    def reset(self, ended: frozenset[int]) -> None:
        """Forget the rows of a round, but those of ports that have ended for good."""
        for two_input in self._two_input:
            two_input.reset(ended)
        for one_input in self._one_input:
            one_input.reset()

    def reset_after_flush(self) -> None:
        """Reset the operators of a free loop, in which rows may come again."""
        for operator in self.operators:
            operator.reset_after_flush()

    def close(self) -> list[TaskFailedError]:
        """Close every operator, whoever raises; return what went wrong."""
        failures = []
        for operator in self.operators:
            try:
                operator.close()
            except FAILURES as error:
                failures.append(closing_failed(error, operator.nodes[0]))
        return failures

    def flush_all(self) -> None:
        """Send on what operators held back only to save work, front to back."""
        for index in range(len(self.operators)):
            self.flush(index)

    def flush(self, index: int) -> None:
        """Send on what an operator held back only to save work."""
        operator = self.operators[index]
        try:
            rows = operator.flush()
        except FAILURES as error:
            raise self.failure(error, operator, None) from error
        if len(rows) > 0:
            self._run(rows, self._steps[index + 1 :])

    def pass_watermark(self, watermark: Watermark, start: int) -> Iterator[None]:
        """Let time go on in the operators from `start` on, and then in those who read."""
        for index, operator in enumerate(self.operators[start:], start):
            if index in self._assigners:
                return
            self.flush(index)
            timed = self._steps[index][-1]
            if timed is not None:
                advance = partial(timed.advance, watermark.time)
                occasion = f"when event time came to {watermark.time}"
                yield from self.emit_from(index, advance, occasion)
            if not operator.nodes[-1].makes_times:
                return
        for router in self._routers[0]:
            for output in router.channels:
                if output.channel.edge.carries_time:
                    output.put_mark(watermark)

    def emit_from(
        self,
        index: int,
        words: Callable[[], Iterable[Batch]],
        occasion: str | None = None,
    ) -> Iterator[None]:
        """Send what an operator says by itself through those behind it."""
        operator, _, timed = self._steps[index]
        batches: Iterator[Batch] | None = None
        while True:
            try:
                if batches is None:
                    batches = iter(words())
                rows = next(batches, None)
            except FAILURES as error:
                raise self.failure(error, operator, None, occasion) from error
            if timed is not None and len(timed.late) > 0:
                self._send_late(timed)
            if rows is None:
                return
            self._run(rows, self._steps[index + 1 :])
            yield

    def end_input(self, port: int) -> None:
        """Note that nothing more comes on an input, while others go on."""
        for operator in self._two_input:
            operator.on_input_end(port)

    def _send_late(self, operator: TimedOperator) -> None:
        """Send what came too late for an operator to whoever reads that."""
        rows, operator.late = operator.late, []
        if operator is self.operators[-1]:
            for router in self._routers[Outlet.LATE]:
                router.route(rows, self.now_ns)
