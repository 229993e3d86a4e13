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

    Locate = Callable[[int | None], str]
    """Says which record is meant, by its number in the batch if it has one."""

    Failed = Callable[[Exception, Rows, int], int | None]
    """Says which record of a part, that begins at a number, failed, if that is known."""

__all__ = ["Guard"]


class Guard:
    """Sends the dead letters of one task.

    Parameters
    ----------
    router
        Where letters go.
    """

    def __init__(self, router: Router) -> None:
        self.router = router

    def process(
        self, operator: Operator, rows: Rows, port: int, now_ns: int, locate: Locate
    ) -> Rows:
        """Return what the operator makes of all records but the failing ones."""
        letters: list[DeadLetter] = []

        def attempt(part: Rows) -> Rows:
            undo = operator.begin_undo(part)
            late, late_count = len(operator.late), operator.late_count
            try:
                return operator.process(part, port)
            except Exception:
                undo()
                del operator.late[late:]
                operator.late_count = late_count
                raise

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

        size = 1 if isinstance(operator, ForEachOperator) else len(rows)
        made = _without_failing(rows, size, attempt, refuse)
        self._send(letters, now_ns)
        kept = [part for part in made if len(part) > 0]
        return joined(kept) if kept else []

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
        self._send(letters, now_ns)

    def _send(self, letters: list[DeadLetter], now_ns: int) -> None:
        if letters:
            self.router.route(letters, now_ns)


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
