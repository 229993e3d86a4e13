"""The interface of an operator inside a task.

An operator gets whole batches and returns whole batches.  It knows neither where
they come from nor where they go.  Which kind of batches it takes, `Rows` or data frames, it
says itself: the plan gives it no others, so nothing here does.

`Operator` is what all have; each is a `OneInputOperator` or a `TwoInputOperator`.  What
some do besides is in classes that they inherit from as well: those for whom event time
goes on, those who are called by the clock, those who write, those who may have enough.
Chain and task find them when they are made.

A loop over rows that calls a user function reads them through a local variable
named ``rows_iterator``; `operators.failure` finds the failing row by it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.state.task_state import TaskState
from millstream.values import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.plan.logical import Node
    from millstream.protocol.ids import Epoch
    from millstream.state.base import State
    from millstream.values import Batch

__all__ = [
    "EarlyEndingOperator",
    "OneInputOperator",
    "Operator",
    "Rows",
    "SealingOperator",
    "TickingOperator",
    "TimedOperator",
    "TwoInputOperator",
    "do_nothing",
]


def do_nothing() -> None:
    """Undo what has changed nothing."""


class Operator:
    """Base of all operators: what does not depend on how many inputs there are."""

    #: Whether a record that makes `process` raise may become a dead letter.
    is_guarded = False
    #: What it remembers, under the name of its last node; None if that is nothing.
    state: State | None = None

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        #: The nodes of the plan that this operator carries out.
        self.nodes = nodes

    def begin_undo(self, rows: Any) -> Callable[[], None]:  # noqa: ARG002 - all, by default
        """Return what undoes a `process` of these rows that raised.

        Called before every batch where dead letters are collected, and only there.
        """
        return (
            self.state.begin_undo() if isinstance(self.state, TaskState) else do_nothing
        )

    def flush(self) -> Batch:
        """Return the rows held back only to save work; called before every cut."""
        return []

    def finish(self) -> Iterable[Batch]:
        """Yield the rows that follow from the end of the input."""
        return ()

    def reset_after_flush(self) -> None:
        """Emit nothing twice: in a free loop, rows and `finish` may follow a `finish`.

        By default all rows are forgotten, as by `reset`.  It may be cut at any time, so
        the next snapshot must know.
        """

    def close(self) -> None:
        """Give back files and connections; called once, also after a failure."""
        if self.state is not None:
            self.state.close()


class OneInputOperator(Operator, ABC):
    """An operator to which all rows come alike."""

    @abstractmethod
    def process(self, rows: Any) -> Batch:
        """Take a batch and return what follows from it."""

    def reset(self) -> None:
        """Forget all rows, after `finish`: another round begins.

        Nothing of a round is ever in a snapshot.  Functions of users keep what they keep.
        """

    def reset_after_flush(self) -> None:
        self.reset()


class TwoInputOperator(Operator, ABC):
    """An operator that tells its inputs apart, by port; it is the first of its stage."""

    @abstractmethod
    def process(self, rows: Any, port: int) -> Batch:
        """Take a batch of input `port` and return what follows from it."""

    def on_input_end(self, port: int) -> None:
        """Note that nothing more comes on input `port`, while others go on."""

    def reset(self, ended: frozenset[int]) -> None:
        """Forget the rows of a round, after `finish`: another one begins.

        What came on the ports in `ended` came once, for all rounds.
        """

    def reset_after_flush(self) -> None:
        self.reset(frozenset())


class TimedOperator(Operator):
    """An operator for which event time goes on."""

    #: How many rows came too late.
    late_count = 0

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        #: Rows that came too late, until its task takes them.
        self.late: Batch = []

    def advance(self, time: int) -> Iterable[Batch]:  # noqa: ARG002 - nothing, by default
        """Yield the rows that follow from event time having come to `time`.

        Nothing with a timestamp of `time` or less follows, except what is late.
        """
        return ()


class TickingOperator(Operator, ABC):
    """An operator that may ask to be called by the wall clock."""

    #: Wall time at which it wants to be called, in milliseconds since 1970.
    tick_at_ms: int | None = None

    @abstractmethod
    def tick(self, now_ms: int) -> Iterable[Batch]:
        """Yield the rows that follow from the wall clock; called at `tick_at_ms`."""


class SealingOperator(Operator, ABC):
    """An operator that writes, and whose output counts when the job commits it."""

    @abstractmethod
    def roll(self) -> None:
        """Hold back nothing that was written when it is sealed the next time."""

    @abstractmethod
    def seal(self, epoch: Epoch) -> object:
        """Make what was written ready for a commit and name it, maybe `Later`."""


class EarlyEndingOperator(Operator, ABC):
    """An operator that may have enough before its input ends."""

    @property
    @abstractmethod
    def is_satisfied(self) -> bool:
        """Whether it needs no more rows; its task then ends early."""
