"""The keyed index: whole batches of keys to dense slots, the row numbers of state.

The first key ever seen has slot 0, the next new one slot 1, and so on in the order of
appearance; a slot is never given back.  State can then be plain NumPy columns.

Two engines give the same slots.  The native one hashes and compares in place, in
Arrow's own buffers; the Polars one works anywhere and serves while the native one is
being compiled.  Keys it has collected by then are copied over a batch's worth at a time,
so that changing engines stops nothing.

Nothing here knows shards, epochs, aggregates or where a batch came from.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from millstream.columns.kernels import loading
from millstream.columns.kernels.columns import KeyColumn
from millstream.columns.kernels.native import NO_NULLS, Strings, ViewKeys, WordKeys
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from numpy.typing import NDArray

    Slots = NDArray[np.int64]

__all__ = ["KeyIndex"]

# How many known keys a call hands to the native engine while changing over.
HANDED_PER_ROW = 4
HANDED_MIN = 1 << 16

HALF, LOW = np.uint64(32), np.uint64(0xFFFF_FFFF)
POSITION = "position"


class KeyIndex:
    """Maps keys of one or several columns to slots.

    Null is a key like any other; so is NaN, and ``-0.0`` is ``0.0``.

    Parameters
    ----------
    schema
        Name and type of every key column.
    engine
        `auto` uses the native engine as soon as it is compiled; `native` waits for it
        and `polars` does without.

    Examples
    --------
    >>> index = KeyIndex({"word": pl.String()}, engine="polars")
    >>> index.slots(pl.DataFrame({"word": ["mill", "stream", "mill"]}))
    array([0, 1, 0])
    >>> index.keys()["word"].to_list()
    ['mill', 'stream']
    """

    def __init__(
        self, schema: Mapping[str, pl.DataType], *, engine: loading.Engine = "auto"
    ) -> None:
        if not schema:
            msg = "a key index needs at least one key column, got none"
            raise UsageError(msg)
        self._columns = [KeyColumn.of(name, kind) for name, kind in schema.items()]
        self._serving: _PolarsKeys | _NativeKeys = _PolarsKeys(len(schema))
        self._coming: _NativeKeys | None = None
        kernels = loading.chosen("index", engine)
        if kernels is not None:
            self._serving = _NativeKeys(self._columns, kernels)
        self._is_waiting = False
        if engine == "auto":
            self.prefer_native()

    def __len__(self) -> int:
        return len(self._serving)

    @property
    def is_native(self) -> bool:
        """Whether the native engine serves by now."""
        return isinstance(self._serving, _NativeKeys)

    @property
    def nbytes(self) -> int:
        """Bytes of memory; an estimate for the Polars engine."""
        coming = self._coming.nbytes if self._coming is not None else 0
        return self._serving.nbytes + coming

    def prefer_native(self) -> None:
        """Change to the native engine from the next batches on, once it is compiled."""
        self._is_waiting = not self.is_native

    def slots(self, keys: pl.DataFrame) -> Slots:
        """Return the slot of the key in every row; a new key gets the next free one.

        Other columns of the frame are ignored.
        """
        if self._is_waiting:
            self._change_over(keys.height)
        return self._serving.slots(self._encoded(keys))

    def keys(self, slots: Slots | None = None) -> pl.DataFrame:
        """Return the keys of these slots, or of all of them in order."""
        if slots is None:
            slots = np.arange(len(self), dtype=np.int64)
        slots = np.ascontiguousarray(slots, dtype=np.int64)
        if slots.size and not 0 <= slots.min() <= slots.max() < len(self):
            msg = (
                f"slots {slots.min()} to {slots.max()} were asked for, but there are "
                f"{len(self)} keys"
            )
            raise IndexError(msg)
        encoded = self._serving.keys(slots)
        return pl.DataFrame(
            [
                column.decoded(part)
                for column, part in zip(self._columns, encoded, strict=True)
            ]
        )

    def _encoded(self, keys: pl.DataFrame) -> list[pl.Series]:
        return [column.encoded(keys) for column in self._columns]

    def _change_over(self, rows: int) -> None:
        """Hand known keys to the native engine, if compiled; at the end let it serve."""
        if self._coming is None:
            kernels = loading.ready("index")
            if kernels is None:
                return
            self._coming = _NativeKeys(self._columns, kernels)
        start = len(self._coming)
        stop = min(len(self), start + max(HANDED_MIN, HANDED_PER_ROW * rows))
        handed = np.arange(start, stop, dtype=np.int64)
        given = self._coming.slots(self._serving.keys(handed))
        assert np.array_equal(given, handed), "engines disagree; a bug in millstream"
        if len(self._coming) == len(self):
            self._serving, self._coming = self._coming, None
            self._is_waiting = False


class _PolarsKeys:
    """Slots by a Python dict of the distinct keys that Polars finds in each batch."""

    def __init__(self, width: int) -> None:
        self._slots: dict[object, int] = {}
        self._names = [f"key{position}" for position in range(width)]
        #: The keys in the order of their slots, in one or more pieces.
        self._frames: list[pl.DataFrame] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        # A dict entry takes about 100 bytes, with a small int or str object.
        frames = sum(frame.estimated_size() for frame in self._frames)
        return int(frames) + 100 * len(self._slots)

    def slots(self, columns: Sequence[pl.Series]) -> Slots:
        frame = self._frame(columns)
        distinct = frame.unique(maintain_order=True, keep="first")
        known, before = self._slots, len(self._slots)
        values = distinct.to_series().to_list() if frame.width == 1 else distinct.rows()
        found = [known.setdefault(value, len(known)) for value in values]
        slots = np.array(found, dtype=np.int64)
        if len(known) > before:
            self._frames.append(distinct.filter(pl.Series(slots >= before)))
        if distinct.height == frame.height:
            return slots
        places = frame.join(
            distinct.with_row_index(POSITION),
            on=self._names,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        return np.take(slots, places[POSITION].to_numpy())

    def keys(self, slots: Slots) -> list[pl.Series]:
        if not self._frames:
            return [pl.Series(name, [], dtype=pl.Null) for name in self._names]
        if len(self._frames) > 1:
            self._frames = [pl.concat(self._frames)]
        return self._frames[0][slots].get_columns()

    def _frame(self, columns: Sequence[pl.Series]) -> pl.DataFrame:
        return pl.DataFrame(
            [c.alias(name) for c, name in zip(columns, self._names, strict=True)]
        )


class _NativeKeys:
    """Slots by compiled loops over Arrow buffers.

    Every column has an index of its own; its slots and those of the columns before it
    are the halves of a word in the index of their pairs.
    """

    def __init__(self, columns: Sequence[KeyColumn], kernels: ModuleType) -> None:
        self._parts: list[_Part] = [
            _StringPart(column.physical, kernels)
            if column.is_string
            else _IntegerPart(kernels)
            for column in columns
        ]
        self._pairs = [WordKeys(kernels) for _ in pairwise(columns)]

    def __len__(self) -> int:
        return len(self._pairs[-1] if self._pairs else self._parts[0])

    @property
    def nbytes(self) -> int:
        parts = sum(part.nbytes for part in self._parts)
        return parts + sum(pairs.nbytes for pairs in self._pairs)

    def slots(self, columns: Sequence[pl.Series]) -> Slots:
        slots = self._parts[0].slots(columns[0])
        following = zip(self._pairs, self._parts[1:], columns[1:], strict=True)
        for pairs, part, column in following:
            left, right = slots.view(np.uint64), part.slots(column).view(np.uint64)
            slots = pairs.slots(left << HALF | right)
        return slots

    def keys(self, slots: Slots) -> list[pl.Series]:
        columns = []
        reverse = zip(reversed(self._pairs), reversed(self._parts[1:]), strict=True)
        for pairs, part in reverse:
            words = pairs.keys(slots)
            columns.append(part.keys((words & LOW).view(np.int64)))
            slots = (words >> HALF).view(np.int64)
        columns.append(self._parts[0].keys(slots))
        return columns[::-1]


class _Part(Protocol):
    """The index of one column."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def slots(self, column: pl.Series) -> Slots: ...

    def keys(self, slots: Slots) -> pl.Series: ...


class _IntegerPart:
    """A column of `Int64`."""

    def __init__(self, kernels: ModuleType) -> None:
        self._keys = WordKeys(kernels)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes

    def slots(self, column: pl.Series) -> Slots:
        nulls = _nulls(column)
        words = column.fill_null(0) if nulls.size else column
        return self._keys.slots(
            np.ascontiguousarray(words.to_numpy()).view(np.uint64), nulls
        )

    def keys(self, slots: Slots) -> pl.Series:
        series = pl.Series(self._keys.keys(slots).view(np.int64))
        if self._keys.null_slot < 0:
            return series
        nothing = pl.Series([None], dtype=pl.Int64)
        return series.zip_with(pl.Series(slots != self._keys.null_slot), nothing)


class _StringPart:
    """A column of `String` or `Binary`."""

    def __init__(self, physical: pl.DataType, kernels: ModuleType) -> None:
        self._keys = ViewKeys(kernels)
        self._is_text = physical == pl.String

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes

    def slots(self, column: pl.Series) -> Slots:
        if column.is_empty():
            return np.zeros(0, dtype=np.int64)
        array = column.to_arrow(compat_level=pl.CompatLevel.newest())
        return self._keys.slots(Strings.of(array), _nulls(column))

    def keys(self, slots: Slots) -> pl.Series:
        series = pl.from_arrow(self._keys.keys(slots, is_text=self._is_text))
        assert isinstance(series, pl.Series)
        return series


def _nulls(column: pl.Series) -> NDArray[np.bool_]:
    return column.is_null().to_numpy() if column.null_count() else NO_NULLS
