"""What a source and a sink must offer; implement these to write your own.

A source is a list of *splits*, each of which can be read again from any *offset*
that its reader once reported: that is what makes a flow repeatable.  A sink is
opened once per task and gets whole batches; what it sealed at a cut becomes visible
when the driver commits.  A writer may hold rows back over many cuts if it says at each of
them what it holds.

Nothing here knows which task reads a split or when a commit happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from millstream.config import Config

__all__ = ["Later", "Sink", "SinkWriter", "Source", "SourceReader", "Split"]

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
        Whatever `Source.open` needs to find it; must be picklable.  It is stored with the
        job's state, so credentials belong into the source.
    """

    name: str
    payload: Any = None


class _Offset:
    """Where a new reader must begin to read what this one has not returned.

    A property of the reader's class, or an attribute that it sets; there must be one.
    """

    def __get__(self, reader: object, owner: type) -> Any:
        if reader is None:
            return self
        msg = (
            f"{owner.__qualname__} has no offset; set self.offset, or define it as a "
            "property: where a new reader must begin to read what this one has not "
            "returned"
        )
        raise NotImplementedError(msg)


class SourceReader(ABC, Generic[T_co]):
    """Reads one split from an offset on."""

    @abstractmethod
    def read(self, rows: int) -> list[T_co] | pl.DataFrame | None:
        """Return about `rows` rows, ``[]`` if none is there yet, None at the end.

        A source of frames returns a data frame in place of a list.

        Must not block for longer than a few milliseconds: all tasks of the worker
        wait meanwhile.
        """

    if TYPE_CHECKING:

        @property
        def offset(self) -> int:
            """Where a new reader must begin to read what this one has not returned."""

    else:
        offset = _Offset()

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

    def keep_in(self, directory: str | None, label: str) -> None:
        """Say where what the source makes for the job must stay for a later run.

        Called first, in the driver; for sources that make something.

        Parameters
        ----------
        directory
            A path below the job's state directory that nobody else uses; None if the job
            has none, or not on a file system.
        label
            A name for it elsewhere, the same in every run; ``""`` if nothing must stay.
        """

    @abstractmethod
    def splits(self, task_count: int) -> list[Split]:
        """Cut the source into parts; called once, in the driver, before the start."""

    def resume(self, splits: tuple[Split, ...]) -> None:
        """Make ready for reading what an earlier run of the job cut into `splits`.

        Called in the driver in place of `splits`, if one of them is not read to its end.
        """

    @abstractmethod
    def open(self, split: Split, offset: int, config: Config) -> SourceReader[T_co]:
        """Return a reader of `split` that begins at `offset` (0 at first)."""

    def identity(self) -> str:
        """Say in a line what it was asked to read; a job goes on only with the same.

        The default is nothing, which fits everything.  What may grow, such as the files
        that a pattern names, is no part of it.
        """
        return ""

    def changes(self, splits: Sequence[Split]) -> list[str]:  # noqa: ARG002 - may be
        """Say what is there now, and is not read, because these splits were cut before.

        Called in the driver of a job that goes on; a sentence each.
        """
        return []

    def forget(self, offsets: dict[str, int | None]) -> None:
        """Remove what lies before these offsets, by the names of splits.

        Called in the driver, from another thread, when no snapshot that is kept needs it
        any more.  None is a split that was read to its end, and one that is not named
        may be read from its beginning.
        """

    def suspend(self) -> None:
        """Give back what a later run of the job does not need; instead of `release`.

        In the driver, when a job that has a state directory ends before its input.
        """
        self.release()

    def release(self) -> None:
        """Give back what `splits` made; in the driver, when the job is over."""


@dataclass(frozen=True, slots=True)
class Later:
    """The rest of a `SinkWriter.seal`, done beside the task while it goes on.

    Attributes
    ----------
    work
        Makes what was written durable and returns what `seal` would have returned.  It
        runs on another thread, after the one of the cut before; if it raises, the task
        fails.
    """

    work: Callable[[], Any]


class SinkWriter(ABC, Generic[T_contra]):
    """What one task writes to."""

    #: Goes up with every recovery; set before the first `write`.  What an older one has
    #: staged and nobody has sealed is nobody's.
    generation: int = 0
    #: Whether it may hold rows back at a cut; see `kept`.
    is_keeping: bool = False

    @abstractmethod
    def write(self, rows: list[T_contra]) -> None:
        """Take a batch; the list must not be kept or changed."""

    def seal(self, epoch: int) -> Any:  # noqa: ARG002 - for those who stage
        """Make what was written since the last time ready for a commit, and name it.

        Called at every cut and at the end.  What it returns is stored with the
        snapshot, and handed to `Sink.commit` once the snapshot is complete; that may
        be much later, in another process, or never.  None means that there is nothing
        to commit, as for a writer that shows every row at once.

        The task stands still meanwhile; return a `Later` with what takes time.
        """
        return None

    def roll(self) -> None:
        """Hold nothing back at the next `seal`: the input is over, or is to be copied."""

    def kept(self) -> Any:
        """Return what it holds back, after a `seal`; plain data that names it.

        It is stored with the snapshot if the writer `is_keeping`, and given to
        `take_back` when the job goes back to that snapshot.
        """
        return None

    def take_back(self, kept: list[Any]) -> None:
        """Hold back what one or more writers held, of as many tasks; before any `write`."""

    def close(self) -> None:
        """Give back files and connections; what was not sealed is lost."""


class Sink(ABC, Generic[T_contra]):
    """A destination of rows."""

    #: False for a sink that must see all rows in one task.
    is_parallel: bool = True
    #: Where it writes, by one spelling, if no other sink may write there; or None.
    destination: str | None = None

    def claim(
        self,
        job: str,  # noqa: ARG002 - for those who write where only one may
        *,
        state: str = "",  # noqa: ARG002
        is_resumed: bool = False,  # noqa: ARG002
        key: bytes = b"",  # noqa: ARG002
    ) -> Callable[[], None] | None:
        """Take the destination for one job, or refuse; in the driver, before `prepare`.

        `state` names the state directory of a job that can be gone on with after its
        driver died, and `key` is one that only its drivers have, to prove what is noted at
        the destination; it must not be stored or sent to workers.  What is returned is called when the driver leaves the job, whether
        that is complete or not.
        """
        return None

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

    def committed_epoch(self, job: str) -> int | None:  # noqa: ARG002 - for those who know
        """Return the last epoch of a job that is visible; None if that is not known.

        In the driver, before a flow begins with a savepoint of that job, or goes on from
        the newest snapshot of its own: rows of later epochs would be written again.
        """
        return None

    def complete(self, job: str) -> None:
        """Note that everything was committed; in the driver.  May be called again."""

    def abort(self, job: str) -> None:
        """Remove what a job left that is not going to go on; in the driver."""
