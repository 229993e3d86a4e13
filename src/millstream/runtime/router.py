"""Spread the output of a task over the channels of one edge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, assert_never

from millstream.plan.grouping import (
    Broadcast,
    ByFunction,
    Columns,
    Fields,
    Gather,
    LocalOrShuffle,
    Shuffle,
)
from millstream.protocol.routing import even_table
from millstream.state.keyhash import check_keys, key_hash, shard_of
from millstream.state.nan import PLAIN, one_nan, rows_with_one_nan
from millstream.values import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.config import Config
    from millstream.plan.stages import Edge
    from millstream.protocol.routing import RoutingTable
    from millstream.runtime.channels import OutputChannel
    from millstream.values import Batch, Row, Rows

__all__ = ["Router", "make_router"]

_key = itemgetter(0)


class Router:
    """Sends every row to the only channel there is."""

    #: Whether a record whose channel cannot be found may become a dead letter.
    is_guarded = False

    def __init__(self, channels: list[OutputChannel]) -> None:
        self.channels = channels

    def route(self, rows: Any, now_ns: int) -> None:
        """Put every row into the buffer of its channel.

        A router says `Rows` or `pl.DataFrame` for `rows`, if it cannot do with either.
        """
        self.channels[0].put(rows, now_ns)

    def dealt(self, rows: Any) -> Sequence[Batch]:
        """Return the rows for each channel; nothing has been sent yet."""
        return [rows]

    def send(self, parts: Sequence[Batch], now_ns: int) -> None:
        """Put what was dealt into the buffers."""
        for channel, part in zip(self.channels, parts, strict=True):
            channel.put(part, now_ns)


class _ByKeyToOne(Router):
    """Sends every row to the only channel, and refuses keys that many would refuse."""

    def __init__(self, channels: list[OutputChannel], keys_max: int) -> None:
        super().__init__(channels)
        self._keys_max = keys_max
        #: Keys that are no plain values, as far as they are known to be keys.
        self._seen: set[Key] = set()

    def route(self, rows: Rows, now_ns: int) -> None:
        kinds = set(map(type, map(_key, rows)))
        super().route(rows if kinds <= PLAIN else self._checked(rows), now_ns)

    def _checked(self, rows: Rows) -> Rows:
        """Look at keys that are new; return the rows with one NaN in all of them."""
        try:
            new = set(map(_key, rows)).difference(self._seen)
            list(map(key_hash, new))
            has_nan = any(one_nan(key) is not key for key in new)
        except TypeError:
            check_keys(list(map(_key, rows)))
            raise
        if has_nan:
            return rows_with_one_nan(rows)
        if len(self._seen) > self._keys_max:
            self._seen.clear()
        self._seen |= new
        return rows


class _Everywhere(Router):
    def route(self, rows: Batch, now_ns: int) -> None:
        for channel in self.channels:
            channel.put(rows, now_ns)


class _InTurn(Router):
    """Deals rows out like cards; goes on next time where it stopped."""

    def __init__(self, channels: list[OutputChannel], start: int) -> None:
        super().__init__(channels)
        self._next = start % len(channels)

    def route(self, rows: Batch, now_ns: int) -> None:
        count = len(self.channels)
        for offset in range(min(count, len(rows))):
            channel = self.channels[(self._next + offset) % count]
            channel.put(rows[offset::count], now_ns)
        self._next = (self._next + len(rows)) % count


class _ByOwner(Router, ABC):
    """Sends a row to the channel that a lookup names."""

    is_guarded = True

    def route(self, rows: Rows, now_ns: int) -> None:
        self.send(self.dealt(rows), now_ns)

    def dealt(self, rows: Rows) -> list[Rows]:
        parts: list[Rows] = [[] for _ in self.channels]
        self._deal(rows, parts)
        return parts

    @abstractmethod
    def _deal(self, rows: Rows, parts: list[Rows]) -> None:
        """Add every row to the part of its channel."""


class _ByKey(_ByOwner):
    def __init__(
        self, channels: list[OutputChannel], table: RoutingTable, keys_max: int
    ) -> None:
        super().__init__(channels)
        self._owners = _Owners(table)
        self._keys_max = keys_max

    def _deal(self, rows: Rows, parts: list[Rows]) -> None:
        owners = self._owners
        rows_iterator = iter(rows)
        try:
            for row in rows_iterator:
                parts[owners[row[0]]].append(row)
        except TypeError:
            check_keys(list(map(_key, rows)))
            raise
        if owners.has_nan:
            owners.has_nan = False
            parts[:] = map(rows_with_one_nan, parts)
        if len(owners) > self._keys_max // 2:
            owners.forget_half()


class _Owners(dict[Key, int]):
    """Remembers the owner of every key seen lately; a hit costs one dict lookup.

    Where it is full, the half that was not used since the last time is forgotten: keys that
    come again and again stay, however many come once.
    """

    def __init__(self, table: RoutingTable) -> None:
        super().__init__()
        self._table = table
        self._older: dict[Key, int] = {}
        #: Whether a key was asked for that has a NaN in it, which no lookup finds again.
        self.has_nan = False

    def __missing__(self, key: object) -> int:
        owner = self._older.get(key)
        if owner is None:
            owner = self._table.owners[shard_of(key, self._table.shard_count)]
        if type(key) in PLAIN or one_nan(key) is key:
            self[key] = owner
        else:
            self.has_nan = True
        return owner

    def forget_half(self) -> None:
        """Forget the keys that were last used before the last call."""
        self._older = dict(self)
        self.clear()


class _ByUserFunction(_ByOwner):
    def __init__(
        self, channels: list[OutputChannel], function: Callable[[Row], object]
    ) -> None:
        super().__init__(channels)
        self._function = function

    def _deal(self, rows: Rows, parts: list[Rows]) -> None:
        function, count = self._function, len(parts)
        rows_iterator = iter(rows)
        for row in rows_iterator:
            number = function(row)
            if not isinstance(number, int):
                msg = (
                    "the function of repartition_by must return a whole number, got "
                    f"{number!r}; to bring equal keys together use key_by"
                )
                raise TypeError(msg)
            parts[number % count].append(row)


def make_router(  # noqa: PLR0911 - one per grouping
    edge: Edge,
    channels: list[OutputChannel],
    task_index: int,
    config: Config,
    *,
    has_letters: bool = False,
) -> Router:
    """Return the router of an edge; `channels` are in the order of their targets.

    With dead letters every key is looked at, also where there is only one channel.
    """
    grouping = edge.grouping
    is_checked = has_letters and isinstance(grouping, Fields | ByFunction)
    if len(channels) == 1 and not is_checked:
        is_keyed = isinstance(grouping, Fields)
        if is_keyed:
            return _ByKeyToOne(channels, config.route_cache_keys_max)
        return Router(channels)
    match grouping:
        case Shuffle() | LocalOrShuffle():
            return _InTurn(channels, task_index)
        case Broadcast():
            return _Everywhere(channels)
        case Fields():
            table = even_table(config.shard_count, len(channels))
            return _ByKey(channels, table, config.route_cache_keys_max)
        case Columns(names):
            return _frame_router(channels, names, config)
        case ByFunction(function):
            return _ByUserFunction(channels, function)
        case Gather():
            return Router(channels)
    assert_never(grouping)


def _frame_router(
    channels: list[OutputChannel], names: tuple[str, ...], config: Config
) -> Router:
    """Return a router of data frames; Polars is imported only where it is used."""
    from millstream.runtime.frame_router import ColumnsRouter  # noqa: PLC0415 - above

    return ColumnsRouter(channels, names, even_table(config.shard_count, len(channels)))
