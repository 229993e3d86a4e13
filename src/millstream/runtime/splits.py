"""From which splits the rows of a channel come, as its writer tells and its reader hears.

Which splits there are both ends know from the beginning; what changes is told by marks, each
before the rows that it holds for.  Who needs to know is the planner's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.barrier import Splits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.runtime.intake import Intake
    from millstream.runtime.outputs import Outputs

__all__ = ["SplitsReader", "SplitsWriter"]


class SplitsReader:
    """What the reader of a channel knows of splits, from the marks of its writer.

    Parameters
    ----------
    names
        Those that had not been read to their end when the job began.
    """

    def __init__(self, names: Iterable[str]) -> None:
        #: The split that the rows come from that are taken next.
        self.reading = ""
        self._has_begun = dict.fromkeys(names, False)

    def note(self, told: Splits) -> None:
        """Take what the writer says."""
        self.reading = told.reading
        self._has_begun |= dict.fromkeys(told.begun, True)
        for name in told.over:
            self._has_begun.pop(name, None)

    def open(self, *, are_waiting: bool) -> list[str]:
        """Return the splits that have not been read to their end, or only begun ones."""
        return [
            n for n, has_begun in self._has_begun.items() if has_begun or are_waiting
        ]


class SplitsWriter:
    """Writes marks of splits for the readers of a task, where a reader wants them."""

    def __init__(self, outputs: Outputs, intake: Intake) -> None:
        self._outputs = outputs
        self._intake = intake
        self._asking = [c for c in outputs.of_rows if c.channel.edge.carries_splits]
        self._reading = ""
        self._begun: set[str] = set()
        self._open: set[str] = set()
        if self._asking:
            self._open.update(intake.open_origins(are_waiting=True))

    def tell(self) -> bool:
        """Tell what has changed before what was taken is sent; return whether it has left."""
        if not self._asking:
            return True
        intake = self._intake
        begun = set(intake.open_origins(are_waiting=False))
        left = set(intake.open_origins(are_waiting=True))
        new, over = begun - self._begun, self._open - left
        if intake.origin == self._reading and not new and not over:
            return True
        mark = Splits(intake.origin, tuple(sorted(new)), tuple(sorted(over)))
        self._reading, self._begun, self._open = intake.origin, begun, left
        for output in self._asking:
            output.put_mark(mark)
        return self._outputs.flush()
