"""Rows of a long frame by the hashes of their keys.

Polars would hash a long side of a join again for every batch.  So a batch is shown only
the rows whose hash is that of one of its own; which of them match, Polars decides.

Nothing here knows joins, or whether rows that are found are still wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from numpy.typing import NDArray

__all__ = ["MANY", "HashLookup", "hashes_of"]

MANY = 4
"""Rows this many times as many as those of a batch are looked up, not read through."""

_HASH_SEED = 0x6D75


def hashes_of(rows: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.uint64]:
    """Return the hash of the keys of every row."""
    hashes: NDArray[np.uint64] = rows.select(keys).hash_rows(_HASH_SEED).to_numpy()
    return hashes


class HashLookup:
    """Where the rows of each hash are.

    Examples
    --------
    >>> lookup = HashLookup(np.array([7, 5, 7], np.uint64))
    >>> lookup.places(np.array([6, 7], np.uint64)).tolist()
    [0, 2]
    """

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def places(self, wanted: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the numbers of the rows with these hashes, one hash after the other.

        The hashes must be in order, and each there once.
        """
        if not len(self._hashes):
            return self._order
        starts = np.searchsorted(self._hashes, wanted, side="left")
        is_there = self._hashes.take(starts, mode="clip") == wanted
        starts, found = starts[is_there], wanted[is_there]
        counts = np.searchsorted(self._hashes, found, side="right") - starts
        before = np.cumsum(counts) - counts
        within = np.arange(counts.sum()) - np.repeat(before, counts)
        places: NDArray[np.intp] = self._order[np.repeat(starts, counts) + within]
        return places
