"""Sums of overlapping windows by arrays: a row per pane, a column per key.

Where most keys have rows in most panes, a window costs an addition and a subtraction per
key, however many panes it has.  Numbers with fractions are added up anew for every window,
as what is added and taken away again leaves its rounding behind.

Nothing here knows how panes are kept, or what the user computes of sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from millstream.columns.index import KeyIndex
from millstream.columns.slots import bits, values_of
from millstream.plan.frame_windows import PANE, WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.columns.kernels import loading
    from millstream.columns.kernels.scatter import Numbers
    from millstream.columns.table import FrameAggregation
    from millstream.plan.windows import Panes

__all__ = ["can_be_dense", "dense_windows"]

_ROOM = 8
"""So many entries are as cheap as a row that is grouped."""

_ENTRIES_MAX = 1 << 24
"""Entries of an array, of 8 bytes each, at most."""


def can_be_dense(aggregation: FrameAggregation) -> bool:
    """Whether all that is kept are sums."""
    folds = [part.fold for part in aggregation.columns]
    is_sum = all(fold is not None and fold.how == "add" for fold in folds)
    return bool(folds) and is_sum and not aggregation.longs


def dense_windows(
    rows: pl.DataFrame,
    aggregation: FrameAggregation,
    panes: Panes,
    between: tuple[int, int],
    engine: loading.Engine,
) -> pl.DataFrame | None:
    """Return the parts of all windows from one to before another, by key and number.

    `rows` are parts by key and pane.  Returns None if they are too few for arrays.
    """
    keys = list(aggregation.keys)
    index = KeyIndex({key: rows.schema[key] for key in keys}, engine=engine)
    slots = index.slots(rows)
    numbers = rows[PANE].to_numpy()
    first, last = int(numbers.min()), int(numbers.max())
    shape = last - first + 1, len(index)
    exploded = rows.height * panes.count // panes.step
    if shape[0] * shape[1] > min(_ROOM * exploded, _ENTRIES_MAX):
        return None
    places = (numbers - first) * len(index) + slots
    spans = [
        (max(panes.begin(window) - first, 0), min(panes.end(window) - first, shape[0]))
        for window in range(*between)
    ]
    there = np.zeros(shape, dtype=np.int64)
    there.reshape(-1)[places] = 1
    found = [np.flatnonzero(own) for own in _sums(there, spans)]
    windows = np.repeat(np.arange(*between), [at.size for at in found])
    made = index.keys()[np.concatenate(found)]
    parts = []
    for part in aggregation.columns:
        assert part.fold is not None, "it cannot be dense"
        for name, kind in zip(part.names, part.fold.kinds, strict=True):
            table = _filled(shape, places, bits(rows[name]))
            sums = zip(_sums(table, spans), found, strict=True)
            values = np.concatenate([own[at] for own, at in sums])
            parts.append(values_of(name, values, kind))
    return made.with_columns(pl.Series(WINDOW, windows), *parts)


def _filled(
    shape: tuple[int, int], places: NDArray[np.int64], values: Numbers
) -> Numbers:
    table = np.zeros(shape, dtype=values.dtype)
    np.add.at(table.reshape(-1), places, values)
    return table


def _sums(table: Numbers, spans: Sequence[tuple[int, int]]) -> Iterator[Numbers]:
    """Yield the sums of rows from one to before another; they are changed later."""
    drops_incomplete = table.dtype == np.int64
    begin, end = spans[0]
    own = table[begin:end].sum(axis=0)
    yield own
    for next_begin, next_end in spans[1:]:
        if drops_incomplete and next_begin < end:
            own += table[end:next_end].sum(axis=0)
            own -= table[begin:next_begin].sum(axis=0)
        else:
            own = table[next_begin:next_end].sum(axis=0)
        begin, end = next_begin, next_end
        yield own
