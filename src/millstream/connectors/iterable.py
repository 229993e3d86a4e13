"""Rows from Python iterables: one for the whole flow, or one per task.

The offset is the number of rows already returned.  A reader that begins later skips
that many, so an iterable must give the same rows in the same order each time.

Nothing here knows what the rows are; that they end is known of what has a length.
"""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Iterable, Sequence, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream.connectors.base import Source, SourceReader, Split
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.config import Config
    from millstream.values import Row, Rows

__all__ = ["IterableSource", "ParallelSource"]

T = TypeVar("T")

_CHUNK_NS = 1_000_000
"""A chunk that took longer is followed by one of half its rows."""

_SKIP_ROWS_MAX = 8192
"""Rows skipped at once, at most, on the way to an offset."""

_LOOKED_AT = 64
"""Items that are looked at to know the same input again."""

_SHOWN_LETTERS = 40
_PLAIN = (int, float, str, bytes, bool, type(None))

_Sliceable = list[T] | tuple[T, ...] | range


class IterableSource(Source[T]):
    """Rows of one iterable, read by one task.

    Parameters
    ----------
    items
        Something that can be iterated again and again, such as a list or a range, or
        a function without arguments that returns an iterable.
    """

    is_parallel = False

    def __init__(self, items: Iterable[T] | Callable[[], Iterable[T]]) -> None:
        if isinstance(items, set | frozenset):
            # The order of a set differs between processes, that of a list does not.
            items = _in_any_order(items)
        iterator = _iterator(items)
        if iterator is None:
            _check_call(items, (), "from_iterable")
        elif iterator is items:
            msg = (
                f"from_iterable got a {type(items).__name__}, which can be read only "
                "once; pass a list, a range or a function that returns an iterator"
            )
            raise UsageError(msg)
        self._items = items
        self._is_function = iterator is None
        self.is_bounded = isinstance(items, Sized)

    def splits(self, task_count: int) -> list[Split]:  # noqa: ARG002
        """Return the one split."""
        return [Split("iterable")]

    def identity(self) -> str:
        """Return how many items there are, and what some of them are."""
        items: Any = self._items
        if not isinstance(items, Sized):
            return ""
        count = f"{len(items)} items"
        if not isinstance(items, Sequence) or not items:
            return count
        step = max(1, len(items) // _LOOKED_AT)
        looked_at = [items[place] for place in (*range(0, len(items), step), -1)]
        if not all(_is_plain(item) for item in looked_at):
            return count
        digest = hashlib.sha256(repr(looked_at).encode()).hexdigest()[:10]
        first = repr(looked_at[0])
        shown = (
            first if len(first) <= _SHOWN_LETTERS else f"{first[:_SHOWN_LETTERS]}..."
        )
        return f"{count}, the first of them {shown} (#{digest})"

    def open(
        self,
        split: Split,  # noqa: ARG002
        offset: int,
        config: Config,  # noqa: ARG002
    ) -> SourceReader[T]:
        """Return a reader that skips `offset` rows."""
        items: Any = self._items
        rows = items() if self._is_function else items
        return _reader(rows, offset, "from_iterable")


class ParallelSource(Source[T]):
    """Rows of one iterable per task, made there by ``function(rank, size)``."""

    def __init__(self, function: Callable[[int, int], Iterable[T]]) -> None:
        _check_call(function, (0, 1), "from_parallel")
        self._function = function

    def splits(self, task_count: int) -> list[Split]:
        """Return one split per rank."""
        return [
            Split(f"rank {rank} of {task_count}", (rank, task_count))
            for rank in range(task_count)
        ]

    def open(self, split: Split, offset: int, config: Config) -> SourceReader[T]:  # noqa: ARG002
        """Call the function for the split's rank and skip `offset` rows."""
        rows = self._function(*split.payload)
        return _reader(rows, offset, "from_parallel")


def _in_any_order(items: Iterable[Row]) -> Rows:
    """Return the items of a set in an order that is the same in every process."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=repr)


def _is_plain(item: object, depth: int = 3) -> bool:
    """Whether the text of an item is the same in every process."""
    if isinstance(item, int | float | str | bytes | None):
        return type(item) in _PLAIN
    if depth == 0 or type(item) not in (tuple, list, dict):
        return False
    assert isinstance(item, Iterable)
    inside = item.items() if isinstance(item, dict) else item
    return all(_is_plain(one, depth - 1) for one in inside)


def _iterator(items: object) -> Iterator[Row] | None:
    """Return an iterator, or None if it has none; sees ``__getitem__`` too."""
    try:
        return iter(cast("Iterable[Row]", items))
    except TypeError:
        return None


def _check_call(function: object, arguments: tuple[int, ...], method: str) -> None:
    wanted = "(rank, size)" if arguments else "()"
    if not callable(function):
        msg = (
            f"{method} takes "
            f"{'' if arguments else 'an iterable or '}a function called as "
            f"function{wanted} that returns one, got a {type(function).__name__}"
        )
        raise UsageError(msg)
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have no signature to check
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        msg = (
            f"{method} calls its function as function{wanted}, but this one has the "
            f"parameters {signature}: {error}"
        )
        raise UsageError(msg) from None


def _reader(items: Iterable[T], offset: int, method: str) -> SourceReader[T]:
    if isinstance(items, list | tuple | range):
        return _SliceReader(cast("_Sliceable[T]", items), offset)
    iterator = _iterator(items)
    if iterator is None:
        msg = (
            f"the function given to {method} returned a {type(items).__name__}, "
            "expected an iterable such as a list or a generator"
        )
        raise TypeError(msg)
    return _IteratorReader(iterator, offset)


class _SliceReader(SourceReader[T]):
    """Reads what has its rows in memory, or computes them at once."""

    def __init__(self, items: _Sliceable[T], offset: int) -> None:
        self._items = items
        self._offset = offset

    def read(self, rows: int) -> list[T] | None:
        batch = cast("list[T]", list(self._items[self._offset : self._offset + rows]))
        self._offset += len(batch)
        return batch or None

    @property
    def offset(self) -> int:
        return self._offset


class _IteratorReader(SourceReader[T]):
    """Reads an iterator whose next row may take any time.

    A chunk grows while it takes less than a millisecond and shrinks when it takes
    longer, so a slow iterator holds up the worker for a row or two, not for a batch.
    """

    def __init__(
        self,
        iterator: Iterator[T],
        offset: int,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._iterator = iterator
        self._offset = offset
        self._skip_rows = offset
        self._chunk_rows = 1
        self._now_ns = now_ns
        self._error: Exception | None = None

    def read(self, rows: int) -> list[T] | None:
        if self._skip_rows:
            self._skip()
            return []
        batch = self._chunk(rows)
        self._offset += len(batch)
        return batch or None

    def _skip(self) -> None:
        skipped = self._chunk(min(self._skip_rows, _SKIP_ROWS_MAX))
        if not skipped:
            msg = (
                f"an iterable that gave {self._offset} rows before ended "
                f"{self._skip_rows} rows earlier when it was read again; it must give "
                "the same rows each time"
            )
            raise ValueError(msg)
        self._skip_rows -= len(skipped)

    def _chunk(self, rows_max: int) -> list[T]:
        """Return up to `rows_max` rows; none at the end.

        An error of the iterator waits until the rows before it were returned: then
        the offset names the row that failed.
        """
        if self._error is not None:
            raise self._error
        rows = min(self._chunk_rows, rows_max)
        batch: list[T] = []
        began_ns = self._now_ns()
        try:
            batch.extend(islice(self._iterator, rows))
        except Exception as error:
            if not batch:
                raise
            self._error = error
        is_slow = self._now_ns() - began_ns > _CHUNK_NS
        self._chunk_rows = max(rows // 2, 1) if is_slow else rows * 2
        return batch

    @property
    def offset(self) -> int:
        return self._offset

    def close(self) -> None:
        """Let a generator run its ``finally`` now, not when it is collected."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
