"""What a source and a sink must offer; implement these to write your own.

A source is a list of *splits*, each of which can be read again from any *offset*
that its reader once reported: that is what makes a flow repeatable.  A sink is
opened once per task and gets whole batches; what it sealed at a cut becomes visible
when the driver commits.

Nothing here knows which task reads a split or when a commit happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from millstream.config import Config

__all__ = ["Sink", "SinkWriter", "Source", "SourceReader", "Split"]

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that one task reads on its own.

    Attributes
    ----------
    name
        What error messages and snapshots call it.
    payload
        Whatever `Source.open` needs to find it; must be picklable.
    """

    name: str
    payload: Any = None


class SourceReader(ABC, Generic[T_co]):
    """Reads one split from an offset on."""

    @abstractmethod
    def read(self, rows: int) -> list[T_co] | None:
        """Return about `rows` rows, ``[]`` if none is there yet, None at the end.

        Must not block for longer than a few milliseconds: all tasks of the worker
        wait meanwhile.
        """

    @property
    @abstractmethod
    def offset(self) -> int:
        """Where a new reader must begin to read what this one has not returned."""

    def close(self) -> None:
        """Give back files and connections."""


class Source(ABC, Generic[T_co]):
    """A replayable origin of rows."""

    #: False for a source that has one split, whatever the number of tasks.
    is_parallel: bool = True
    #: True for a source whose splits all end; they are then read one after the other.
    is_bounded: bool = False
    #: For how many tasks it is cut where rows are given time, however many there are;
    #: None for as many as there are.
    timed_parts: int | None = None
    #: Task slots of Spark that it needs beside those of the workers.
    spare_slots: int = 0

    @abstractmethod
    def splits(self, task_count: int) -> list[Split]:
        """Cut the source into parts; called once, in the driver, before the start."""

    @abstractmethod
    def open(self, split: Split, offset: int, config: Config) -> SourceReader[T_co]:
        """Return a reader of `split` that begins at `offset` (0 at first)."""

    def release(self) -> None:
        """Give back what `splits` made; in the driver, when the job is over."""


class SinkWriter(ABC, Generic[T_contra]):
    """What one task writes to."""

    @abstractmethod
    def write(self, rows: list[T_contra]) -> None:
        """Take a batch; the list must not be kept or changed."""

    def seal(self, epoch: int) -> Any:  # noqa: ARG002 - for those who stage
        """Make what was written since the last time ready for a commit, and name it.

        Called at every cut and at the end.  What it returns is pickled, stored with the
        snapshot, and handed to `Sink.commit` once the snapshot is complete; that may
        be much later, in another process, or never.  None means that there is nothing
        to commit, as for a writer that shows every row at once.
        """
        return None

    def close(self) -> None:
        """Give back files and connections; what was not sealed is lost."""


class Sink(ABC, Generic[T_contra]):
    """A destination of rows."""

    #: False for a sink that must see all rows in one task.
    is_parallel: bool = True

    def prepare(self, job: str, *, is_resumed: bool = False) -> None:
        """Check and make the destination; in the driver, before the workers start.

        `is_resumed` if the job has been here before and goes on.
        """

    @abstractmethod
    def open(self, job: str, task: int) -> SinkWriter[T_contra]:
        """Return the writer of one task."""

    def commit(self, job: str, epoch: int, transactions: list[Any]) -> None:
        """Make visible what writers sealed up to an epoch; in the driver.

        Called again with the same epoch and transactions if it is not certain that the
        first call did its work; that must change nothing.
        """

    def complete(self, job: str) -> None:
        """Note that everything was committed; in the driver.  May be called again."""

    def abort(self, job: str) -> None:
        """Remove what a job left that is not going to go on; in the driver."""
