"""How rows of state are stored: keys and values, by shard.

Where all of them are plain scalars, a payload is a msgpack list of the keys and the values;
else it is a pickled list of pairs.  The first byte tells which.  A pair whose value is
`DELETED` says that the key is gone.  Payloads apply in order, the later one wins.  They are
unpickled here, so whoever hands one over must have checked that nobody else wrote it.

Nothing here knows tables, epochs or files.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

import msgpack

from millstream.errors import SnapshotError
from millstream.state.base import Segment, SegmentKind
from millstream.state.keyhash import shard_of, shards_of
from millstream.state.turns import give_way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

    from millstream.state.base import ShardRange

    Pair = tuple[Any, Any]

__all__ = [
    "DELETED",
    "Frozen",
    "decode_rows",
    "encode_rows",
    "frozen_values",
    "rows_within",
    "segments_by_shard",
    "sharded_segments",
    "unstorable",
]

SEGMENT_ROWS_MIN = 64
"""Fewer rows share a segment with those of the next shards."""

SEGMENT_ROWS_MAX = 1 << 13
"""More rows of one shard go into several segments: pickling one stops all threads."""


class _Deleted:
    """The value of a key that was deleted."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DELETED"

    def __reduce__(self) -> str:
        return "DELETED"


DELETED = _Deleted()

_SCALARS = frozenset({bool, bytes, complex, float, int, str, type(None), _Deleted})
_PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""What msgpack gives back as it was; of these exactly, as it flattens subclasses."""

_COLUMNS_START = 0x92
"""What a msgpack list of two begins with; a pickle begins with 0x80."""

_CONTAINERS = (tuple, frozenset)
_COPIED = (list, set)


class Frozen:
    """A value as it was at a cut; who decodes the rows gets the value itself."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (self.data,)


def unstorable(owner: str, error: Exception) -> SnapshotError:
    """Return the sentence for what `owner`, a noun, keeps and pickle refused."""
    msg = (
        f"{owner} cannot be stored: {type(error).__name__}: {error}; keep only "
        "values that pickle can store, and open files and connections anew"
    )
    return SnapshotError(msg)


def frozen_values(keys: list[Any], values: list[Any]) -> Sequence[Any]:
    """Return the values such that nobody can change them any more.

    Immutable ones are returned as they are, flat containers copied, others pickled.
    Where all are of one kind, as they mostly are, no loop runs in Python.
    """
    if _are_flat(values):
        return values
    if set(map(type, values)) == {dict}:
        names = set(map(tuple, values))
        entries = list(chain.from_iterable(map(dict.values, values)))
        if _are_flat(list(chain.from_iterable(names))) and _are_flat(entries):
            if len(names) == 1 and entries:
                return _Alike(names.pop(), entries)
            return list(map(dict.copy, values))
    return [
        value if type(value) in _SCALARS else _frozen(key, value)
        for key, value in zip(keys, values, strict=True)
    ]


def _frozen(key: object, value: Any) -> Any:
    kind = type(value)
    if kind in _CONTAINERS and _is_flat(value):
        return value
    if kind is dict and _is_flat(value.values()) and _is_flat(value):
        return value.copy()
    if kind in _COPIED and _is_flat(value):
        return value.copy()
    try:
        return Frozen(pickle.dumps(value, protocol=5))
    except Exception as error:
        owner = f"the state of key {key!r}"
        raise unstorable(owner, error) from error


def _are_flat(items: list[Any]) -> bool:
    """Whether certainly none of many items can change."""
    kinds = set(map(type, items))
    if kinds <= _SCALARS:
        return True
    if not kinds <= _SCALARS.union(_CONTAINERS):
        return False
    if not kinds.issubset(_CONTAINERS):
        items = [item for item in items if type(item) in _CONTAINERS]
    return _are_flat(list(chain.from_iterable(items)))


class _Alike(Sequence[dict[Any, Any]]):
    """Flat dicts that all have the same keys, in the same order; made when asked for.

    Copying thousands of dicts takes several times as long as keeping their values.
    """

    __slots__ = ("_entries", "_names")

    def __init__(self, names: tuple[Any, ...], entries: list[Any]) -> None:
        self._names = names
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries) // len(self._names)

    @overload
    def __getitem__(self, place: int) -> dict[Any, Any]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[dict[Any, Any]]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        width = len(self._names)
        entries = self._entries[place * width : (place + 1) * width]
        return dict(zip(self._names, entries, strict=True))


def _is_flat(items: Iterable[Any]) -> bool:
    """Whether certainly none of the items can change."""
    for item in items:
        kind = type(item)
        if kind not in _SCALARS and not (kind in _CONTAINERS and _is_flat(item)):
            return False
    return True


def encode_rows(keys: list[Any], values: list[Any]) -> bytes:
    """Return the payload of these keys and their values.

    Examples
    --------
    >>> decode_rows(encode_rows(["a", "b"], [1, DELETED]))
    [('a', 1), ('b', DELETED)]
    """
    plain = _plain_columns(keys, values)
    return plain or pickle.dumps(list(zip(keys, values, strict=True)), protocol=5)


def _encoded_pairs(rows: list[Pair]) -> bytes:
    """Return the same payload of keys and values that come in pairs."""
    values = [value for _, value in rows]
    plain = None
    if type(values[0]) in _PLAIN:
        plain = _plain_columns([key for key, _ in rows], values)
    return plain or pickle.dumps(rows, protocol=5)


def _plain_columns(keys: list[Any], values: list[Any]) -> bytes | None:
    if _PLAIN.issuperset(map(type, values)) and _PLAIN.issuperset(map(type, keys)):
        # A text that is no Unicode, or a number beyond 64 bits, is for pickle.
        with suppress(ValueError, OverflowError):
            return bytes(msgpack.packb((keys, values)))
    return None


def decode_rows(payload: bytes) -> list[Pair]:
    """Return the pairs of a payload that was checked to be ours."""
    if payload[0] == _COLUMNS_START:
        return list(zip(*msgpack.unpackb(payload), strict=True))
    rows: list[Pair] = pickle.loads(payload)  # noqa: S301 - the store authenticated it
    return rows


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
        payload = _encoded_pairs(group)
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
    operator: str, task: int, keys: list[Any], values: Sequence[Any], shard_count: int
) -> Iterator[Segment]:
    """Yield the segments of these keys and values, which lie in no order."""
    found = _shards_of_many(keys, shard_count)
    order = found.argsort(kind="stable")
    shards = found[order]
    start = 0
    while start < len(keys):
        end = _segment_end(shards, start)
        chosen = order[start:end].tolist()
        payload = encode_rows(
            list(map(keys.__getitem__, chosen)), list(map(values.__getitem__, chosen))
        )
        covered = (int(shards[start]), int(shards[end - 1]) + 1)
        yield Segment(operator, task, SegmentKind.ROWS, covered, payload)
        give_way()
        start = end


def _shards_of_many(keys: list[Any], shard_count: int) -> npt.NDArray[np.int64]:
    """Return the shards of more keys than are hashed at once: that stops all threads."""
    import numpy as np  # noqa: PLC0415 - a flow of rows needs it for this only

    found = np.empty(len(keys), np.int64)
    for start in range(0, len(keys), SEGMENT_ROWS_MAX):
        some = keys[start : start + SEGMENT_ROWS_MAX]
        found[start : start + len(some)] = shards_of(some, shard_count)
        give_way()
    return found


def _segment_end(shards: npt.NDArray[np.int64], start: int) -> int:
    """Return where a segment ends that begins at `start`, in shards in order."""
    last = min(start + SEGMENT_ROWS_MIN, len(shards)) - 1
    end = int(shards.searchsorted(shards[last], side="right"))
    return min(end, start + SEGMENT_ROWS_MAX)
