"""External merge sort of data frames: sorted runs on disk, merged in bounded memory.

A merge has a piece or two of every run in memory.  It puts them in order together, and
everything up to the first *last row* - the last row in memory of a run that goes on - is
final: what follows in that run comes after it, and so does what follows in all others,
because their last rows do.  Which row comes first is thus left to Polars alone, with its
nulls, NaNs and collations.

Equal rows stay in the order of their runs.  Nothing here knows about operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from millstream.state.batches import arrow_bytes, frame_from_arrow
from millstream.state.spill_buffer import SpillFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from millstream.state.spill_buffer import Piece

    Run = list[Piece]
    """Sorted frames on disk, in order."""

__all__ = ["RowOrder", "SortedRuns"]

FAN_IN = 16
"""Runs that are merged at a time; more are first merged into longer ones."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """What rows are ordered by."""

    by: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: tuple[bool, ...]

    def sorted(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows in order; equal ones stay as they are."""
        return frame.sort(
            self.by,
            descending=list(self.descending),
            nulls_last=list(self.nulls_last),
            maintain_order=True,
        )

    def places(self, frame: pl.DataFrame) -> NDArray[np.intp]:
        """Return the numbers of the rows in order."""
        order = pl.arg_sort_by(
            self.by,
            descending=list(self.descending),
            nulls_last=list(self.nulls_last),
            maintain_order=True,
        )
        places: NDArray[np.intp] = (
            frame.select(self.by)
            .select(order.alias("place"))
            .to_series()
            .to_numpy()
            .astype(np.intp)
        )
        return places


class SortedRuns:
    """Sorted frames on disk that become one sequence of frames.

    Parameters
    ----------
    memory_bytes
        Bytes of rows that a merge may have in memory, not counting what it is sorting.
    """

    def __init__(self, order: RowOrder, memory_bytes: int) -> None:
        self._order = order
        self._piece_bytes = max(1, memory_bytes // (2 * FAN_IN))
        #: The runs, oldest first, and how many merges are behind each.
        self._runs: list[tuple[int, Run]] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, frame: pl.DataFrame) -> None:
        """Store rows, which are in order, as a run."""
        row_bytes = frame.estimated_size() / max(1, frame.height)
        piece_rows = max(1, int(self._piece_bytes / max(1.0, row_bytes)))
        self._runs.append((0, _stored(frame.iter_slices(piece_rows))))
        while self._is_full():
            self._shorten(FAN_IN)

    def merged(self) -> Iterator[pl.DataFrame]:
        """Take out all rows and yield them in order."""
        while len(self._runs) > FAN_IN:
            self._shorten(min(FAN_IN, len(self._runs) - FAN_IN + 1))
        runs, self._runs = self._runs, []
        yield from _merged([_frames(run) for _, run in runs], self._order)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the rows of all runs, oldest run first; they stay where they are."""
        for _, run in self._runs:
            yield from _frames(run)

    def close(self) -> None:
        """Give the disk space back; safe to call at any time."""
        self._runs = []

    def _is_full(self) -> bool:
        """Whether the newest runs are as many as can be merged, all of one length."""
        newest = [level for level, _ in self._runs[-FAN_IN:]]
        return len(newest) == FAN_IN and newest[0] == newest[-1]

    def _shorten(self, count: int) -> None:
        """Make one run of the newest ones."""
        newest, self._runs = self._runs[-count:], self._runs[:-count]
        level = 1 + max(level for level, _ in newest)
        merged = _merged([_frames(run) for _, run in newest], self._order)
        self._runs.append((level, _stored(merged)))


def _stored(frames: Iterable[pl.DataFrame]) -> Run:
    file = SpillFile()
    return [file.append(arrow_bytes(frame)) for frame in frames]


def _frames(run: Run) -> Iterator[pl.DataFrame]:
    return (frame_from_arrow(piece.read()) for piece in run)


class _Head:
    """The rows of a run that are in memory: at least as many as the last piece had."""

    def __init__(self, pieces: Iterable[pl.DataFrame]) -> None:
        self._pieces = iter(pieces)
        self._piece_rows = 1
        self.rows: pl.DataFrame | None = None
        self.goes_on = True

    def fill(self) -> pl.DataFrame | None:
        """Read on where few rows are left; return what is in memory."""
        while self.goes_on and (
            self.rows is None or self.rows.height < self._piece_rows
        ):
            piece = next(self._pieces, None)
            if piece is None:
                self.goes_on = False
                break
            self._piece_rows = piece.height
            self.rows = piece if self.rows is None else pl.concat([self.rows, piece])
        return self.rows

    def drop(self, count: int) -> None:
        """Forget rows that have found their place."""
        assert self.rows is not None
        self.rows = self.rows.slice(count)


def _merged(
    sources: Iterable[Iterable[pl.DataFrame]], order: RowOrder
) -> Iterator[pl.DataFrame]:
    """Yield the rows of sorted sequences of frames in order."""
    heads = [_Head(source) for source in sources]
    while True:
        filled = [(head, head.fill()) for head in heads]
        heads = [head for head, rows in filled if rows is not None and rows.height]
        pieces = [rows for _, rows in filled if rows is not None and rows.height]
        if not pieces:
            return
        ends = np.cumsum([piece.height for piece in pieces])
        rows = pl.concat(pieces)
        final = _final(order.places(rows), ends[[head.goes_on for head in heads]] - 1)
        yield rows[final]
        owners = np.searchsorted(ends, final, side="right")
        taken = np.bincount(owners, minlength=len(heads)).tolist()
        for head, count in zip(heads, taken, strict=True):
            head.drop(count)


def _final(places: NDArray[np.intp], lasts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the row numbers up to the first that is one of `lasts`."""
    is_last = np.isin(places, lasts)
    return places[: int(is_last.argmax()) + 1] if is_last.any() else places
