"""Rows of one side of a join: kept in the order of time, found by key, told to snapshots.

Rows are in *runs*, each in the order of time, so that a piece of time is a slice and what
is too old is not looked at.  Runs of similar size become one until they are large: there
are few of them, and if rows come about in the order of time, large ones lie one behind
the other.  A long run is also known by the hashes of its keys, so that a batch costs what
it finds and not what there is.

Nothing here knows what is joined, or why rows are no longer needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from millstream.operators.frames.hash_lookup import MANY, HashLookup, hashes_of
from millstream.plan.frame_windows import TIME
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.frame_log import LogDelta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["JoinBuffer", "ProbeKeys", "clipped"]

RUN_ROWS = 1 << 20
"""Runs of this size do not become longer."""


def clipped(time: int) -> int:
    """Return a time that fits into 64 bits."""
    return min(max(time, BEGINNING), END_OF_TIME)


class ProbeKeys:
    """The keys of a batch, for which rows of the other side are wanted."""

    def __init__(self, rows: pl.DataFrame, keys: tuple[str, ...]) -> None:
        self._rows = rows
        self._keys = keys
        self._hashes: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return self._rows.height

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The different hashes of the keys, in order."""
        if self._hashes is None:
            self._hashes = np.unique(hashes_of(self._rows, self._keys))
        return self._hashes


class _Run:
    """Rows in the order of time, of which the first ones may be forgotten."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self._all = rows
        self._times = rows[TIME].to_numpy()
        self._begin = 0
        self._lookup: HashLookup | None = None

    def __len__(self) -> int:
        return self._all.height - self._begin

    @property
    def rows(self) -> pl.DataFrame:
        """All rows."""
        return self._all.slice(self._begin)

    @property
    def last(self) -> int:
        """The largest time."""
        return int(self._times[-1])

    def first(self, after: int) -> int | None:
        """Return the least time that is later than `after`."""
        place = int(np.searchsorted(self._times, after, side="right"))
        place = max(place, self._begin)
        return int(self._times[place]) if place < len(self._times) else None

    def forget(self, least: int) -> None:
        """Drop the rows before a time."""
        self._begin = max(self._begin, int(np.searchsorted(self._times, least)))

    def between(self, first: int, last: int) -> tuple[int, int]:
        """Return where the rows from `first` to `last` begin and end."""
        begin = int(np.searchsorted(self._times, first, side="left"))
        end = int(np.searchsorted(self._times, last, side="right"))
        return max(begin, self._begin), end

    def slice(self, first: int, last: int) -> pl.DataFrame:
        """Return the rows from `first` to `last`."""
        begin, end = self.between(first, last)
        return self._all.slice(begin, max(end - begin, 0))

    def candidates(
        self, wanted: ProbeKeys, keys: tuple[str, ...], first: int, last: int
    ) -> pl.DataFrame:
        """Return the rows of a piece of time, and of the wanted keys if they are many."""
        begin, end = self.between(first, last)
        if end - begin <= MANY * len(wanted):
            return self._all.slice(begin, max(end - begin, 0))
        if self._lookup is None:
            self._lookup = HashLookup(hashes_of(self._all, keys))
        places = self._lookup.places(wanted.hashes)
        candidates: pl.DataFrame = self._all[places[(begin <= places) & (places < end)]]
        return candidates


class JoinBuffer:
    """The rows of one side.

    Parameters
    ----------
    facts
        What else snapshots must know; it may change.
    """

    def __init__(self, keys: tuple[str, ...], facts: dict[str, int]) -> None:
        self.keys = keys
        #: What the logs of former tasks said, until somebody takes it.
        self.former: list[LogDelta] = []
        self._facts = facts
        self._runs: list[_Run] = []
        self._least = BEGINNING
        #: Rows that snapshots do not have yet, with the stamps under which they came;
        #: None as long as nobody takes any.
        self._fresh: list[tuple[int, pl.DataFrame]] | None = None
        self._stamp = 0
        #: The stamp under which all rows went.
        self._anew = 0
        #: How many rows went that snapshots still have.
        self._dropped = 0

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def first(self, after: int = BEGINNING) -> int | None:
        """Return the least time that is later than `after`."""
        found = (run.first(clipped(after)) for run in self._runs)
        return min((time for time in found if time is not None), default=None)

    @property
    def last(self) -> int | None:
        """The largest time."""
        return max((run.last for run in self._runs), default=None)

    def add(self, rows: pl.DataFrame) -> None:
        """Keep more rows."""
        if rows.is_empty():
            return
        if self._fresh is not None:
            self._fresh.append((self._stamp, rows))
        self._keep(rows)

    def _keep(self, rows: pl.DataFrame) -> None:
        runs = self._runs
        runs.append(_Run(rows.sort(TIME, maintain_order=True)))
        while len(runs) > 1 and len(runs[-2]) <= min(2 * len(runs[-1]), RUN_ROWS // 2):
            both = pl.concat([run.rows for run in runs[-2:]])
            runs[-2:] = [_Run(both.sort(TIME, maintain_order=True))]

    def between(self, first: int, last: int) -> pl.DataFrame | None:
        """Return the rows from `first` to `last`; None if there are none."""
        bounds = clipped(first), clipped(last)
        return _together([run.slice(*bounds) for run in self._runs])

    def candidates(
        self, wanted: ProbeKeys, first: int, last: int
    ) -> pl.DataFrame | None:
        """Return all rows from `first` to `last` of the wanted keys, and maybe others."""
        bounds = clipped(first), clipped(last)
        return _together(
            [run.candidates(wanted, self.keys, *bounds) for run in self._runs]
        )

    def forget(self, least: int) -> None:
        """Drop the rows before a time."""
        self._least = max(self._least, clipped(least))
        for run in self._runs:
            run.forget(self._least)
        self._runs = [run for run in self._runs if len(run)]

    def thin_out(self, kept: pl.DataFrame) -> None:
        """Keep only these rows, of which it does not matter if others come back."""
        self._dropped += len(self) - kept.height
        self._runs = []
        self._keep(kept)

    def replace(self, rows: pl.DataFrame) -> None:
        """Keep these rows instead."""
        self.clear()
        self.add(rows)

    def clear(self) -> None:
        """Forget everything."""
        self._runs = []
        self._least = BEGINNING
        self._anew = self._stamp
        if self._fresh is not None:
            self._fresh = []

    # As a log

    def delta(self, since: int) -> LogDelta:
        """Return what was added after a stamp; everything if that is not much more."""
        is_all = since == 0 or self._anew > since or self._dropped > len(self)
        if is_all:
            self._dropped = 0
            rows = _together([run.rows for run in self._runs])
        else:
            fresh = self._fresh or []
            rows = _together([rows for stamp, rows in fresh if stamp > since])
        return LogDelta(rows, is_all, dict(self._facts), TIME, self._least)

    def begin_stamp(self, stamp: int, stored: int) -> None:
        """Count what comes from now on under this stamp; up to `stored` all is safe."""
        self._stamp = stamp
        fresh = self._fresh or []
        self._fresh = [(own, rows) for own, rows in fresh if own > stored]

    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        """Let the owner take the rows of former tasks, in the order that it wants."""
        self.former = list(logs)
        leasts = {log.least for log in logs}
        if len(leasts) == 1:
            self._least = _known(leasts.pop())
        else:
            # What one of them has forgotten must not come back with the next segment.
            self._anew = self._stamp + 1

    def take(self, log: LogDelta) -> None:
        """Keep the rows of a former task."""
        if log.rows is not None and log.rows.height:
            self._keep(log.rows)


def _together(found: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    found = [rows for rows in found if rows.height]
    return pl.concat(found) if found else None


def _known(least: int | None) -> int:
    return BEGINNING if least is None else least
