"""The writer of part files: when a part is complete, and what is held back until then.

At every cut a task ends the file that it writes, a *piece*, and begins another.  Pieces
wait in the staging directory, named by the snapshot, until there are enough of them: then
the part is *rolled*, which makes one file of them, and the commit of that epoch shows it.
So readers see few large files instead of one per task and epoch, and a row is seen when
its part is rolled.

Ending, syncing and merging files is done beside the task (`Later`); a cut waits for no
disk.  Nothing here knows where the files are.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Generic, NamedTuple, Protocol, TypeVar

from millstream.connectors.base import Later, SinkWriter
from millstream.connectors.output import Piece, part_name, staging_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.connectors.output import Move, Output, Part

__all__ = ["PartFormat", "PartsWriter", "Roll", "SealedParts", "Target"]

T_contra = TypeVar("T_contra", contravariant=True)

_PIECES_MAX = 500
"""Of one part; it is rolled early rather than consist of more."""


@dataclass(frozen=True, slots=True)
class Roll:
    """When a part is complete: at so many bytes, or after so long; with its end anyway."""

    size: int
    every_ns: int


class SealedParts(NamedTuple):
    """A transaction: what one task shows, and what it holds back.

    Attributes
    ----------
    moves
        Parts to show.
    spent
        Pieces that these were made of.
    held
        Pieces that are kept for a later part.
    is_first
        Whether it is of the first cut after a recovery, at which every task says what it
        holds; what else older generations left is nobody's then.
    """

    generation: int
    is_first: bool
    moves: tuple[Move, ...] = ()
    spent: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


class Kept(NamedTuple):
    """What a writer holds back at a cut.

    Attributes
    ----------
    age_ns
        For how long it has held the first row back.
    is_blank
        Whether it has written nothing at all since the beginning of the job.
    """

    pieces: tuple[Piece, ...]
    age_ns: int
    is_blank: bool


class PartFormat(ABC, Generic[T_contra]):
    """Writes the rows of one part to its file."""

    #: About how many bytes it has taken and not written.
    held_bytes: int = 0

    @abstractmethod
    def write(self, rows: list[T_contra]) -> None:
        """Take a batch."""

    def finish(self) -> None:
        """Write what is still held back, and what a file of this format ends with."""


class Target(Protocol[T_contra]):
    """What a writer needs to know of its sink."""

    output: Output
    name: str
    suffix: str
    roll: Roll

    def make_format(self, file: BinaryIO) -> PartFormat[T_contra]:
        """Return what turns rows into the bytes of a part file."""
        ...

    def merge(self, pieces: Iterable[BinaryIO], file: BinaryIO) -> None:
        """Write the rows of finished pieces to one file."""
        ...


@dataclass(slots=True)
class _Written(Generic[T_contra]):
    """A piece that this writer has written, finished or not."""

    part: Part
    format: PartFormat[T_contra]
    is_finished: bool = False

    @property
    def size(self) -> int:
        return self.part.file.tell() + self.format.held_bytes

    def finish(self) -> None:
        """Write it to its end; it need not be durable yet."""
        if not self.is_finished:
            self.format.finish()
            self.part.finish()
            self.is_finished = True


class _Group(NamedTuple):
    """The pieces of a part that is being rolled, and what it will be called."""

    pieces: tuple[Piece, ...]
    name: str


class PartsWriter(SinkWriter[T_contra]):
    """Writes the parts of one task.

    A task that gets no rows from the first epoch to the last shows a part without rows, so
    that an output without rows still has its header or schema.

    Parameters
    ----------
    clock
        Nanoseconds since some beginning.
    """

    is_keeping = True

    def __init__(
        self,
        target: Target[T_contra],
        job: str,
        task: int,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._target = target
        self._job = job
        self._task = task
        self._clock = clock
        self._current: _Written[T_contra] | None = None
        #: Full ones, in front of the current one.
        self._full: list[tuple[_Written[T_contra], Piece]] = []
        self._pieces: list[Piece] = []
        self._began_ns: int | None = None
        self._is_rolling = False
        self._is_blank = False
        self._is_first = True
        self._numbered = (0, 0)

    def write(self, rows: list[T_contra]) -> None:
        if len(rows) == 0:
            return
        current = self._opened()
        current.format.write(rows)
        self._is_blank = False
        if self._began_ns is None:
            self._began_ns = self._clock()
        if current.size >= self._target.roll.size:
            self._full.append((current, self._piece(current)))
            self._current = None
            current.finish()

    def roll(self) -> None:
        self._is_rolling = True

    def seal(self, epoch: int) -> SealedParts | Later | None:
        if epoch == 1 and not self._pieces and not self._full and not self._current:
            self._is_blank = True
        if self._is_blank and self._is_rolling:
            self._opened()
            self._is_blank = False
        written = self._full
        if self._current is not None:
            written = [*written, (self._current, self._piece(self._current))]
        self._full, self._current = [], None
        pieces = [*self._pieces, *(piece for _, piece in written)]
        groups, self._pieces = self._rolled(pieces, epoch)
        self._is_rolling = False
        if not self._pieces:
            self._began_ns = None
        elif groups:
            self._began_ns = self._clock()
        sealed = self._sealed(groups)
        if not written and not groups:
            return sealed if sealed.is_first else None
        return Later(
            partial(self._store, [each for each, _ in written], groups, sealed)
        )

    def kept(self) -> Kept:
        age_ns = 0 if self._began_ns is None else self._clock() - self._began_ns
        return Kept(tuple(self._pieces), age_ns, self._is_blank)

    def take_back(self, kept: list[Kept]) -> None:
        self._pieces = [piece for each in kept for piece in each.pieces]
        self._is_blank = all(each.is_blank for each in kept)
        if self._pieces:
            self._began_ns = self._clock() - max(each.age_ns for each in kept)

    def close(self) -> None:
        if self._current is not None:
            self._current.part.abandon()

    def _opened(self) -> _Written[T_contra]:
        if self._current is None:
            part = self._target.output.part(self._job, self._task, self.generation)
            self._current = _Written(part, self._target.make_format(part.file))
        return self._current

    def _piece(self, written: _Written[T_contra]) -> Piece:
        home, folder = self._target.output.home, staging_name(self._job)
        return Piece(home, folder, written.part.name, written.size)

    def _rolled(
        self, pieces: list[Piece], epoch: int
    ) -> tuple[list[_Group], list[Piece]]:
        """Return the parts that are complete, and the pieces of the one that is not."""
        groups: list[_Group] = []
        rest: list[Piece] = []
        for piece in pieces:
            rest.append(piece)
            if sum(each.size for each in rest) >= self._target.roll.size:
                groups.append(self._group(rest, epoch))
                rest = []
        if rest and self._is_due(rest):
            groups.append(self._group(rest, epoch))
            rest = []
        return groups, rest

    def _is_due(self, rest: list[Piece]) -> bool:
        """Whether pieces that are not large enough make a part all the same."""
        if self._is_rolling or self._began_ns is None:
            return True
        age_ns = self._clock() - self._began_ns
        return age_ns >= self._target.roll.every_ns or len(rest) >= _PIECES_MAX

    def _group(self, pieces: Sequence[Piece], epoch: int) -> _Group:
        last, count = self._numbered
        self._numbered = (epoch, count + 1 if last == epoch else 0)
        number = self._numbered[1]
        target = self._target
        name = part_name(target.name, self._task, epoch, number, target.suffix)
        return _Group(tuple(pieces), name)

    def _sealed(self, groups: Sequence[_Group]) -> SealedParts:
        """Return the transaction, of which only the parts to show are not known yet."""
        is_first, self._is_first = self._is_first and self.generation > 1, False
        spent = [piece for group in groups for piece in group.pieces]
        return SealedParts(
            self.generation,
            is_first,
            spent=self._own_names(spent),
            held=self._own_names(self._pieces),
        )

    def _own_names(self, pieces: Iterable[Piece]) -> tuple[str, ...]:
        owns = partial(self._target.output.owns, self._job)
        return tuple(piece.name for piece in pieces if owns(piece))

    def _store(
        self,
        written: list[_Written[T_contra]],
        groups: list[_Group],
        sealed: SealedParts,
    ) -> SealedParts | None:
        """Make the new pieces durable, and one file of those of each complete part."""
        for each in written:
            each.finish()
            each.part.store()
        moves = tuple((self._merged(group), group.name) for group in groups)
        if not moves and not sealed.is_first:
            return None
        moved = {staged for staged, _ in moves}
        spent = tuple(name for name in sealed.spent if name not in moved)
        return sealed._replace(moves=moves, spent=spent)

    def _merged(self, group: _Group) -> str:
        """Return the name of a staged file that holds all rows of the part."""
        output = self._target.output
        if len(group.pieces) == 1 and output.owns(self._job, group.pieces[0]):
            return group.pieces[0].name
        part = output.part(self._job, self._task, self.generation)
        try:
            self._target.merge(map(output.opened, group.pieces), part.file)
            part.finish()
        except BaseException:
            part.abandon()
            raise
        part.store()
        return part.name
