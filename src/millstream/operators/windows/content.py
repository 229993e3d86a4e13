"""What is kept of the values in a pane or a window, and what becomes of it.

Three kinds: an accumulator; an accumulator with values that wait for earlier ones; all
values.  Items are values, or pairs of timestamp and value where rows have timestamps.
When a window is complete is not known here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from millstream.plan import aggregate as aggregates
from millstream.plan.aggregate import MISSING
from millstream.state.copies import own_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import NoReturn

    from millstream.plan.aggregate import Aggregate
    from millstream.plan.windows import Window, Windowed
    from millstream.values import TimedRow, Value

    Item = Value | TimedRow
    """A value, behind its timestamp where rows have one."""

__all__ = ["Accumulators", "AllValues", "Content", "OrderedAccumulators", "content_of"]

P = TypeVar("P", bound="Hashable")

_BUILTINS = [
    aggregates.builtin(name)
    for name in ("count", "sum", "min", "max", "mean", "first", "last")
]
_KNOWN_UPDATES = {aggregate.update for aggregate in _BUILTINS}
_KNOWN_MERGES = {a.merge for a in (*_BUILTINS, aggregates.builtin("unique"))}
_WAITING_MAX = 256
_time_of = itemgetter(0)
_value_of = itemgetter(1)


class Content(ABC):
    """How the values of panes are kept; stored values are plain and can be pickled."""

    @abstractmethod
    def put(self, panes: dict[P, Value], pane: P, item: Item, reached: int) -> None:
        """Add an item to a pane, which need not be there yet."""

    @abstractmethod
    def joined(self, earlier: Value, later: Value) -> Value:
        """Return what is stored of two as one; both are given up."""

    @abstractmethod
    def result(self, window: Window, stored: list[Value]) -> Value:
        """Return what becomes of panes in order; it shares nothing with them."""


class Accumulators(Content):
    """An accumulator, updated with every value as it comes.

    Parameters
    ----------
    is_pair
        Whether items are pairs and the aggregate gets only their values.
    is_kept
        Whether accumulators are needed after a result was made of them; then functions of
        the user, which may change what they are given, get copies.
    """

    def __init__(self, aggregate: Aggregate, *, is_pair: bool, is_kept: bool) -> None:
        self.aggregate = aggregate
        self.is_pair = is_pair
        self._finish = aggregate.finish
        is_lasting = is_kept and aggregate.update not in _KNOWN_UPDATES
        self._own = own_copy if is_lasting else _itself
        #: Merges two accumulators that are needed again.
        self.merged: Callable[[Value, Value], Value] = aggregate.merge or _unmerged
        if is_lasting and aggregate.merge not in _KNOWN_MERGES:
            merge = self.merged
            self.merged = lambda x, y: merge(own_copy(x), own_copy(y))

    def put(self, panes: dict[P, Value], pane: P, item: Item, reached: int) -> None:  # noqa: ARG002
        value = item[1] if self.is_pair else item
        aggregate = self.aggregate
        if pane in panes:
            panes[pane] = aggregate.update(panes[pane], value)
        else:
            panes[pane] = aggregate.first(value)

    def joined(self, earlier: Value, later: Value) -> Value:
        merge = self.aggregate.merge or _unmerged
        return merge(earlier, later)

    def part(self, stored: Value) -> Value:
        """Return the accumulator in what is stored."""
        return stored

    def result(self, window: Window, stored: list[Value]) -> Value:  # noqa: ARG002
        return self.finished(stored)

    def finished(self, parts: list[Value]) -> Value:
        """Return the result of accumulators in order."""
        part = reduce(self.merged, parts) if len(parts) > 1 else self._own(parts[0])
        return part if self._finish is None else self._finish(part)


class OrderedAccumulators(Accumulators):
    """An accumulator, and values that it takes once no earlier ones follow.

    Stored is a list of both; items are pairs.
    """

    def put(self, panes: dict[P, Value], pane: P, item: Item, reached: int) -> None:
        if pane not in panes:
            panes[pane] = [MISSING, [item]]
            return
        stored = panes[pane]
        waiting = stored[1]
        waiting.append(item)
        if len(waiting) % _WAITING_MAX == 0:
            waiting.sort(key=_time_of)
            ready = [item for item in waiting if item[0] <= reached]
            stored[0] = self._updated(stored[0], ready)
            del waiting[: len(ready)]

    def result(self, window: Window, stored: list[Value]) -> Value:  # noqa: ARG002
        return self.finished(list(map(self.part, stored)))

    def joined(self, earlier: Value, later: Value) -> Value:
        if later[0] is MISSING:
            return [earlier[0], earlier[1] + later[1]]
        part = super().joined(self.part(earlier), later[0])
        return [part, later[1]]

    def part(self, stored: Value) -> Value:
        """Return the accumulator after all values; those of a window that is over."""
        if stored[1]:
            stored[1].sort(key=_time_of)
            stored[0] = self._updated(stored[0], stored[1])
            stored[1] = []
        return stored[0]

    def _updated(self, part: Value, items: list[Item]) -> Value:
        values: Iterable[Value] = map(_value_of, items) if self.is_pair else items
        return _folded(self.aggregate, part, values)


class AllValues(Content):
    """All items, in the order of their timestamps where they have one.

    Parameters
    ----------
    is_timed
        Whether items are pairs.
    """

    def __init__(
        self, make: Callable[[Window, list[Value]], Value], *, is_timed: bool
    ) -> None:
        self._make = make
        self._is_timed = is_timed

    def put(self, panes: dict[P, Value], pane: P, item: Item, reached: int) -> None:  # noqa: ARG002
        if pane in panes:
            panes[pane].append(item)
        else:
            panes[pane] = [item]

    def joined(self, earlier: Value, later: Value) -> Value:
        return earlier + later

    def result(self, window: Window, stored: list[Value]) -> Value:
        items = list(chain.from_iterable(stored))
        if self._is_timed:
            items.sort(key=_time_of)
            items = list(map(_value_of, items))
        return self._make(window, items)


def content_of(
    spec: Windowed, *, is_timed: bool, is_merging: bool, is_kept: bool
) -> Content:
    """Return how the values of a windowed aggregation are kept.

    Parameters
    ----------
    is_timed
        Whether items are pairs of timestamp and value.
    is_merging
        Whether parts must be put together; if not, any aggregate has accumulators.
    is_kept
        Whether what is stored is needed after a result was made of it.
    """
    aggregate = spec.aggregate
    if aggregate is None:
        make = spec.function or _the_values
        return AllValues(make, is_timed=is_timed)
    if is_merging and aggregate.merge is None:
        return AllValues(_aggregated(aggregate), is_timed=is_timed)
    is_pair = is_timed and not spec.sees_times
    kind = OrderedAccumulators if is_timed and spec.is_ordered else Accumulators
    return kind(aggregate, is_pair=is_pair, is_kept=is_kept)


def _aggregated(aggregate: Aggregate) -> Callable[[Window, list[Value]], Value]:
    def result(_window: Window, values: list[Value]) -> Value:
        part = _folded(aggregate, MISSING, values)
        return part if aggregate.finish is None else aggregate.finish(part)

    return result


def _folded(aggregate: Aggregate, part: Value, values: Iterable[Value]) -> Value:
    values = iter(values)
    if part is MISSING:
        for value in values:
            part = aggregate.first(value)
            break
    return reduce(aggregate.update, values, part)


def _the_values(_window: Window, values: list[Value]) -> list[Value]:
    return values


def _unmerged(_left: object, _right: object) -> NoReturn:
    msg = "an aggregate without `merge` has no parts to merge"
    raise AssertionError(msg)


def _itself(part: Value) -> Value:
    return part
