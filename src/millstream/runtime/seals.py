"""What the sinks of a task sealed since its last cut, some of it still to be done.

A sink may leave the slow part of its sealing, waiting for a disk say, to the thread that
stores the task's state.  Nothing here knows what a sink writes to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.connectors.base import Later
from millstream.operators.base import SealingOperator
from millstream.runtime.chain import FAILURES, TaskFailedError
from millstream.state.plain import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.operators.base import Operator
    from millstream.plan.logical import Node
    from millstream.protocol.ids import Epoch

__all__ = ["Seal", "Seals", "finished"]

Seal = tuple[str, bytes | Callable[[], bytes | None]]
"""Name of an operator, and its transaction, encoded; or what does the rest and returns it."""


class Seals:
    """Collects the seals of one task from one cut to the next."""

    def __init__(self, operators: Iterable[Operator]) -> None:
        self._sealing: dict[Operator, SealingOperator] = {
            o: o for o in operators if isinstance(o, SealingOperator)
        }
        self._seals: list[Seal] = []

    def add(self, operator: Operator, epoch: Epoch, *, rolls: bool = False) -> None:
        """Let an operator seal what it wrote, if it writes; if it rolls, all of it."""
        sealing = self._sealing.get(operator)
        if sealing is None:
            return
        if rolls:
            sealing.roll()
        transaction, node = sealing.seal(epoch), sealing.nodes[-1]
        if isinstance(transaction, Later):
            self._seals.append((node.name, partial(_done, node, transaction.work)))
        elif transaction is not None:
            self._seals.append((node.name, _packed(transaction)))

    def taken(self) -> tuple[Seal, ...]:
        """Return what was sealed since the last time."""
        seals, self._seals = tuple(self._seals), []
        return seals


def finished(seals: Iterable[Seal]) -> tuple[tuple[str, bytes], ...]:
    """Do the rest of every seal; raises `TaskFailedError` where that fails."""
    done = [(name, seal() if callable(seal) else seal) for name, seal in seals]
    return tuple((name, wire) for name, wire in done if wire is not None)


def _done(node: Node, work: Callable[[], Any]) -> bytes | None:
    try:
        transaction = work()
    except FAILURES as error:
        raise TaskFailedError(None, node, "while sealing what it wrote") from error
    return None if transaction is None else _packed(transaction)


def _packed(transaction: Any) -> bytes:
    return encode(transaction)
