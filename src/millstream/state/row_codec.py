"""How rows of state are stored: keys and values, by shard.

A payload is a list of values and a list of their keys, encoded together (`state.plain`).  A
key whose value is `DELETED` is gone.  Payloads apply in order, the later one wins.  Whoever
hands one over to be decoded must have checked that nobody else wrote it.

Nothing here knows tables, epochs or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import is_
from typing import TYPE_CHECKING, overload

from millstream.errors import SnapshotError
from millstream.state.base import Segment, SegmentKind
from millstream.state.copies import FIXED, SCALARS, is_fixed
from millstream.state.keyhash import shard_of, shards_of
from millstream.state.plain import decode_lists, encode_lists
from millstream.state.turns import give_way
from millstream.values import Entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

    from millstream.state.base import ShardRange
    from millstream.values import Key, Pair, Value

__all__ = [
    "DELETED",
    "decode_rows",
    "encode_rows",
    "fixed_values",
    "rows_within",
    "segments_by_shard",
    "sharded_payloads",
    "sharded_segments",
    "unstorable",
]

SEGMENT_ROWS_MIN = 64
"""Fewer rows share a segment with those of the next shards."""

SEGMENT_ROWS_MAX = 1 << 13
"""More rows of one shard go into several segments: encoding one stops all threads."""


class _Deleted:
    """The value of a key that was deleted."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DELETED"

    def __reduce__(self) -> str:
        return "DELETED"


DELETED = _Deleted()
_OPEN = object()
"""Stands for a value that holds something which can be changed."""

_SAMPLE = 8
"""Values are mostly of one kind, so a few tell whether to look at all."""

_SCALARS = SCALARS | {_Deleted}
_COPIED = (list, set)


def unstorable(owner: str, error: Exception) -> SnapshotError:
    """Return the sentence for what `owner`, a noun, keeps and pickle refused."""
    msg = (
        f"{owner} cannot be stored: {type(error).__name__}: {error}; keep only "
        "values that pickle can store, and open files and connections anew"
    )
    return SnapshotError(msg)


def fixed_values(values: list[Value]) -> Sequence[Value] | None:
    """Return values such that nobody can change them any more; None if some are not flat.

    Immutable ones are returned as they are, flat containers are copied.  Where all are of
    one kind, as they mostly are, no loop runs in Python.

    Examples
    --------
    >>> fixed_values([1, [2, ("x", None)]])
    [1, [2, ('x', None)]]
    >>> fixed_values([1, [2, []]])
    """
    if any(_fixed(value) is _OPEN for value in values[:_SAMPLE]):
        return None
    if _are_flat(values):
        return values
    kinds = set(map(type, values))
    if kinds == {dict}:
        names = set(map(tuple, values))
        entries = list(chain.from_iterable(map(dict.values, values)))
        if _are_flat(list(chain.from_iterable(names))) and _are_flat(entries):
            if len(names) == 1 and entries:
                return _Alike(names.pop(), entries)
            return list(map(dict.copy, values))
    if kinds == {list} and _are_flat(list(chain.from_iterable(values))):
        return list(map(list.copy, values))
    found = list(map(_fixed, values))
    return None if any(map(is_, found, repeat(_OPEN))) else found


def _fixed(value: Value) -> Value:
    kind = type(value)
    if kind is _Deleted or is_fixed(value):
        return value
    if kind is dict and all(map(is_fixed, chain(value.values(), value))):
        return value.copy()
    if kind in _COPIED and all(map(is_fixed, value)):
        return value.copy()
    return _OPEN


def _are_flat(items: list[Value]) -> bool:
    """Whether certainly none of many items can change."""
    kinds = set(map(type, items))
    if kinds <= _SCALARS:
        return True
    if not kinds <= _SCALARS.union(FIXED):
        return False
    if not kinds.issubset(FIXED):
        items = [item for item in items if type(item) in FIXED]
    return _are_flat(list(chain.from_iterable(items)))


class _Alike(Sequence[Entries]):
    """Flat dicts that all have the same keys, in the same order; made when asked for.

    Copying thousands of dicts takes several times as long as keeping their values.
    """

    __slots__ = ("_entries", "_names")

    def __init__(self, names: tuple[Key, ...], entries: list[Value]) -> None:
        self._names = names
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries) // len(self._names)

    @overload
    def __getitem__(self, place: int) -> Entries: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Entries]: ...

    def __getitem__(self, place: int | slice) -> Entries | Sequence[Entries]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        width = len(self._names)
        entries = self._entries[place * width : (place + 1) * width]
        return dict(zip(self._names, entries, strict=True))


def encode_rows(keys: list[Key], values: list[Value]) -> bytes:
    """Return the payload of these keys and their values.

    Examples
    --------
    >>> decode_rows(encode_rows(["a", "b"], [1, DELETED]))
    [('a', 1), ('b', DELETED)]
    """
    return encode_lists(values, keys)


def decode_rows(payload: bytes) -> list[Pair]:
    """Return the pairs of a payload that was checked to be ours."""
    values, keys = decode_lists(payload)
    return list(zip(keys, values, strict=True))


def rows_within(segment: Segment, shards: ShardRange, shard_count: int) -> list[Pair]:
    """Return the pairs of a segment whose keys lie in these shards."""
    assert segment.kind is SegmentKind.ROWS, f"segment of kind {segment.kind}"
    first, end = shards
    segment_first, segment_end = segment.shards
    if segment_end <= first or end <= segment_first:
        return []
    rows = decode_rows(segment.payload)
    if first <= segment_first and segment_end <= end:
        return rows
    return [row for row in rows if first <= shard_of(row[0], shard_count) < end]


def segments_by_shard(
    operator: str, task: int, rows: Iterable[tuple[int, Pair]]
) -> Iterator[Segment]:
    """Yield the segments of pairs that come with their shard, in the order of shards.

    A segment holds whole shards, as many as it takes to have some rows in it; the rows
    of a very large shard are spread over several segments.
    """
    group: list[Pair] = []
    first = last = 0

    def made() -> Segment:
        payload = encode_rows([key for key, _ in group], [value for _, value in group])
        return Segment(operator, task, SegmentKind.ROWS, (first, last + 1), payload)

    for shard, row in rows:
        is_next = shard != last and len(group) >= SEGMENT_ROWS_MIN
        if is_next or len(group) >= SEGMENT_ROWS_MAX:
            yield made()
            give_way()
            group = []
        if not group:
            first = shard
        group.append(row)
        last = shard
    if group:
        yield made()


def sharded_segments(
    operator: str, task: int, keys: list[Key], values: Sequence[Value], shard_count: int
) -> Iterator[Segment]:
    """Yield the segments of these keys and values, which lie in no order."""
    for shards, payload in sharded_payloads(keys, values, shard_count, give_way):
        yield Segment(operator, task, SegmentKind.ROWS, shards, payload)


def sharded_payloads(
    keys: list[Key],
    values: Sequence[Value],
    shard_count: int,
    pause: Callable[[], None],
) -> Iterator[tuple[ShardRange, bytes]]:
    """Yield the shards and the payloads of these keys and values.

    Parameters
    ----------
    pause
        Called between two of them, and between pieces of what comes before the first.
    """
    found = _shards_of_many(keys, shard_count, pause)
    order = found.argsort(kind="stable")
    shards = found[order]
    start = 0
    while start < len(keys):
        end = _segment_end(shards, start)
        chosen = order[start:end].tolist()
        payload = encode_rows(
            list(map(keys.__getitem__, chosen)), list(map(values.__getitem__, chosen))
        )
        yield (int(shards[start]), int(shards[end - 1]) + 1), payload
        pause()
        start = end


def _shards_of_many(
    keys: list[Key], shard_count: int, pause: Callable[[], None]
) -> npt.NDArray[np.int64]:
    """Return the shards of more keys than are hashed at once: that stops all threads."""
    import numpy as np  # noqa: PLC0415 - a flow of rows needs it for this only

    found = np.empty(len(keys), np.int64)
    for start in range(0, len(keys), SEGMENT_ROWS_MAX):
        some = keys[start : start + SEGMENT_ROWS_MAX]
        found[start : start + len(some)] = shards_of(some, shard_count)
        pause()
    return found


def _segment_end(shards: npt.NDArray[np.int64], start: int) -> int:
    """Return where a segment ends that begins at `start`, in shards in order."""
    last = min(start + SEGMENT_ROWS_MIN, len(shards)) - 1
    end = int(shards.searchsorted(shards[last], side="right"))
    return min(end, start + SEGMENT_ROWS_MAX)
