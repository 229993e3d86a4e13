"""Panes: the pieces of which overlapping windows consist, and how pieces are put together.

A row goes into one pane, however many windows it is in.  What a pane holds, and where
windows lie, is not known here.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.values import Value

__all__ = ["FEW_PANES", "TwoStacks", "present", "stored_in"]

FEW_PANES = 32
"""Up to here putting the panes of a window together anew is as fast as anything."""


def stored_in(panes: dict[int, Value], first: int, end: int) -> list[Value]:
    """Return what is stored in the panes from `first` to before `end`, in order."""
    if end - first <= len(panes):
        return [panes[pane] for pane in range(first, end) if pane in panes]
    return [panes[pane] for pane in sorted(panes) if first <= pane < end]


def present(panes: dict[int, Value], first: int, end: int) -> list[int]:
    """Return the numbers of the panes from `first` to before `end`, in order."""
    if end - first <= len(panes):
        return [pane for pane in range(first, end) if pane in panes]
    return sorted(pane for pane in panes if first <= pane < end)


class TwoStacks:
    """What the windows of one key have in common, one window after the other.

    The panes are cut into blocks as long as a window.  A window is then the end of one
    block and the beginning of the next; the ends of a block are put together once, from
    its last pane on, and the beginning grows with every window.  So a window costs a few
    merges, however many panes it has, and always the same ones: after a crash, when this
    is made anew, the result is the same to the last bit.
    """

    __slots__ = ("_count", "_end", "_ends", "_grown", "_merge", "_middle", "_panes")

    def __init__(self, count: int, merge: Callable[[Value, Value], Value]) -> None:
        #: How many panes a window has.
        self._count = count
        self._merge = merge
        #: The place between two blocks that the next windows go over.
        self._middle: int | None = None
        #: The panes before it, and what each has together with those behind it.
        self._panes: list[int] = []
        self._ends: list[Value] = []
        #: What is put together behind it, and up to where.
        self._grown: list[Value] = []
        self._end = 0

    def put_together(
        self, panes: dict[int, Value], begin: int, part: Callable[[Value], Value]
    ) -> list[Value]:
        """Return what the window that begins with a pane has, in at most two parts."""
        end = begin + self._count
        middle = -(-begin // self._count) * self._count
        if middle != self._middle:
            self._begin(panes, begin, middle, part)
        for pane in present(panes, self._end, end):
            more = part(panes[pane])
            self._grown = [self._merge(self._grown[0], more)] if self._grown else [more]
        self._end = end
        where = bisect_left(self._panes, begin)
        left = self._ends[where : where + 1]
        return [*left, *self._grown]

    def _begin(
        self,
        panes: dict[int, Value],
        begin: int,
        middle: int,
        part: Callable[[Value], Value],
    ) -> None:
        self._middle = self._end = middle
        self._grown = []
        self._panes = present(panes, begin, middle)
        ends: list[Value] = []
        for pane in reversed(self._panes):
            more = part(panes[pane])
            ends.append(self._merge(more, ends[-1]) if ends else more)
        self._ends = ends[::-1]
