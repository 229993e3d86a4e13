"""Let a task go on without the records that make a function raise.

A batch that fails is taken back and done again in parts: what is before the failing
record, and what is behind it.  Where nobody knows which record it was, the batch is
halved until it is clear.  So a record is either worked on as if the others were not
there, or it is a dead letter and has changed nothing.

Which operators can be taken back is their own business (`Operator.begin_undo`).
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from millstream.credentials import without_credentials
from millstream.operators.base import TimedOperator
from millstream.operators.dead_letters import DeadLetter
from millstream.operators.failure import blame, is_record_to_blame, row_index
from millstream.operators.rows.output import ForEachOperator
from millstream.plan.frame_windows import HIDDEN
from millstream.plan.timed import makes_pairs, strip_timestamp
from millstream.state.batches import joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.operators.base import Operator, Rows
    from millstream.plan.logical import Node
    from millstream.runtime.router import Router

    Process = Callable[[Rows], Rows]

    Locate = Callable[[int | None], str]
    """Says which record is meant, by its number in the batch if it has one."""

    Failed = Callable[[Exception, Rows, int], int | None]
    """Says which record of a part, that begins at a number, failed, if that is known."""

__all__ = ["Guard", "Guarded"]


class Guard:
    """Sends the dead letters of one task.

    Parameters
    ----------
    router
        Where letters go.
    """

    def __init__(self, router: Router) -> None:
        self.router = router

    def around(self, operator: Operator, process: Process) -> Guarded:
        """Return the operator, of which failing records become dead letters."""
        return Guarded(self, operator, process)

    def route(self, router: Router, rows: Rows, now_ns: int, node: Node) -> None:
        """Route all records but those whose target cannot be found."""
        letters: list[DeadLetter] = []

        def refuse(error: Exception, part: Rows, start: int) -> int | None:
            index = row_index(error, part)
            if index is None:
                index = _the_only(part)
            if index is not None:
                at = f"record {start + index} of {len(rows)} to be sent on"
                record = strip_timestamp(
                    _record(part, index),
                    is_timed=node.makes_times and isinstance(part, list),
                    has_key=makes_pairs(node),
                )
                cause = _cause(error, "")
                letters.append(DeadLetter(record, cause, node.user_name, at))
            return index

        for dealt in _without_failing(rows, len(rows), router.dealt, refuse):
            router.send(dealt, now_ns)
        self.send(letters, now_ns)

    def send(self, letters: list[DeadLetter], now_ns: int) -> None:
        """Send dead letters, if there are any."""
        if letters:
            self.router.route(letters, now_ns)


class Guarded:
    """An operator of which failing records become dead letters."""

    def __init__(self, guard: Guard, operator: Operator, process: Process) -> None:
        self._guard = guard
        self._operator = operator
        self._process = process
        self._timed = operator if isinstance(operator, TimedOperator) else None
        #: Whether what it did for a record cannot be taken back.
        self._has_side_effects = isinstance(operator, ForEachOperator)

    def process(self, rows: Rows, now_ns: int, locate: Locate) -> Rows:
        """Return what the operator makes of all records but the failing ones."""
        operator, letters = self._operator, []

        def refuse(error: Exception, part: Rows, start: int) -> int | None:
            found = blame(error, operator, part)
            index = _the_only(part) if found.row_index is None else found.row_index
            if index is not None:
                cause = _cause(error, found.user_line)
                at = locate(start + index)
                first = operator.nodes[0]
                record = strip_timestamp(
                    _record(part, index),
                    is_timed=first.takes_times and isinstance(part, list),
                    has_key=first.takes_pairs,
                )
                letters.append(DeadLetter(record, cause, found.node.user_name, at))
            return index

        size = 1 if self._has_side_effects else len(rows)
        made = _without_failing(rows, size, self._attempt, refuse)
        self._guard.send(letters, now_ns)
        kept = [part for part in made if len(part) > 0]
        return joined(kept) if kept else []

    def _attempt(self, part: Rows) -> Rows:
        """Return what the operator makes of some records; undo it if one fails."""
        undo, timed = self._operator.begin_undo(part), self._timed
        late = 0 if timed is None else len(timed.late)
        late_count = 0 if timed is None else timed.late_count
        try:
            return self._process(part)
        except Exception:
            undo()
            if timed is not None:
                del timed.late[late:]
                timed.late_count = late_count
            raise


def _without_failing(
    rows: Rows, size: int, attempt: Callable[[Rows], Any], refuse: Failed
) -> list[Any]:
    """Return what `attempt` makes of the rows, in parts, in order."""
    starts = range(0, len(rows), size)
    pending = [(start, rows[start : start + size]) for start in reversed(starts)]
    made = []
    while pending:
        start, part = pending.pop()
        try:
            made.append(attempt(part))
        except Exception as error:
            if not is_record_to_blame(error):
                raise
            index = refuse(error, part, start)
            middle = len(part) // 2 if index is None else index
            behind = middle if index is None else index + 1
            halves = [(start + behind, part[behind:]), (start, part[:middle])]
            pending += [(at, half) for at, half in halves if len(half) > 0]
    return made


def _the_only(part: Rows) -> int | None:
    return 0 if len(part) == 1 else None


def _record(part: Any, index: int) -> Any:
    """Return a record of a batch; of a data frame without the columns nobody knows."""
    if isinstance(part, list):
        return part[index]
    named: dict[str, Any] = part.row(index, named=True)
    return {name: value for name, value in named.items() if name not in HIDDEN}


def _cause(error: Exception, user_line: str) -> str:
    lines = traceback.format_exception_only(error)
    text = " ".join(line.strip() for line in lines)
    return without_credentials(f"{text} ({user_line})" if user_line else text)
