"""What a task asks of its intake, wherever that takes its elements from.

`take` answers with the next element, or with None when there is nothing now.  Everything
that a task must react to is an element (`elements.py`); no task looks into its intake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.plan.logical import Node
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.messages import Offset
    from millstream.runtime.chain import TaskFailedError
    from millstream.runtime.elements import Element
    from millstream.state.base import State

__all__ = ["Intake"]


class Intake(Protocol):
    """Where the elements of a task come from: the splits of a source, or channels."""

    @property
    def has_rounds(self) -> bool:
        """Whether its task is in the body of an iteration, or decides over one."""
        ...

    def take(self, now_ns: int) -> Element | None:
        """Return the next element; behind a barrier nothing until `release`."""
        ...

    def wake_ns(self) -> int | None:
        """Return when it wants to be asked again though nothing has come."""
        ...

    def note_time(self, rows: int, elapsed_ns: int) -> None:
        """Learn how long it took to take and process a batch."""
        ...

    # Cuts

    def announce(self, barrier: Barrier) -> None:
        """Learn that an epoch is open; for those to whom no channel brings it."""
        ...

    def release(self, *, is_pausing: bool) -> bool:
        """Read on: the cut is done; return whether its barrier goes round no loop.

        Where it does, `LoopSealed` follows; if `is_pausing`, no rows before that.
        """
        ...

    def resume(self) -> None:
        """Give rows again: the pause is over."""
        ...

    def offsets(self) -> tuple[Offset, ...]:
        """Return how far every split has been read that has been begun."""
        ...

    def states(self) -> dict[str, State]:
        """Return what it remembers, by name."""
        ...

    # Rounds

    def begin_round(self) -> None:
        """Take the rows of the next round, or of the time until the next probe."""
        ...

    # Where rows come from

    @property
    def knows_splits(self) -> bool:
        """Whether origins are splits, which are the same ones at any width."""
        ...

    @property
    def origin(self) -> str:
        """Where the last batch came from."""
        ...

    def open_origins(self, *, are_waiting: bool) -> list[str]:
        """Return where more may come from; of splits all, or only begun ones."""
        ...

    def position(self, row_index: int | None, row_count: int) -> str:
        """Say which row of the last batch is meant."""
        ...

    def failure(self, error: BaseException, node: Node) -> TaskFailedError:
        """Return what tells the coordinator that `take` raised, and where."""
        ...

    # What is measured and checked

    @property
    def bytes_taken(self) -> int:
        """Bytes of the batches that came from other workers and were taken."""
        ...

    def waiting(self) -> tuple[int, int]:
        """Return how many batches and rows have come and were not taken."""
        ...

    def validate(self) -> None:
        """Assert what its cores promise; asked by tests and by the simulator."""
        ...

    def close(self) -> None:
        """Take nothing more, and give everything back; safe to call at any time."""
        ...
