"""Aggregate by pane inside the sending stage, for windows that one task has all of.

Parts leave before every watermark, so none is later than its rows were.  A row behind what
the watermark of its origin leaves by itself: which windows it is in is decided for each.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from millstream.operators.base import OneInputOperator
from millstream.plan.windows import CombineWindows, Panes, TimeWindows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node

__all__ = ["CombinePanesOperator"]

_PANES_MAX = 4096
_TIME, _PART = range(2)


class CombinePanesOperator(OneInputOperator):
    """Keeps an accumulator and the latest timestamp for every pane."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[-1].spec
        assert isinstance(spec, CombineWindows)
        window = spec.windowed.window
        assert isinstance(window, TimeWindows)
        assert spec.windowed.aggregate is not None
        self._aggregate = spec.windowed.aggregate
        self._layout = Panes(window.size_ms, window.slide_ms, window.offset_ms)
        self._panes: dict[int, list[Any]] = {}

    def process(self, rows: Rows) -> Rows:
        first, update = self._aggregate.first, self._aggregate.update
        panes, pane_of, behind = self._panes, self._layout.of, []
        rows_iterator = iter(rows)
        for key, (time, value) in rows_iterator:
            if type(time) is not int:
                behind.append((key, (time, first(value))))
                continue
            pane = pane_of(time)
            if pane in panes:
                held = panes[pane]
                held[_PART] = update(held[_PART], value)
                held[_TIME] = max(held[_TIME], time)
            else:
                panes[pane] = [time, first(value)]
        return behind + self.flush() if len(panes) > _PANES_MAX else behind

    def begin_undo(self, rows: Rows) -> Callable[[], None]:  # noqa: ARG002 - all panes
        before = copy.deepcopy(self._panes)

        def undo() -> None:
            self._panes = before

        return undo

    def flush(self) -> Rows:
        rows = [(None, (time, part)) for time, part in self._panes.values()]
        self._panes = {}
        return rows

    def finish(self) -> Iterable[Rows]:
        return (self.flush(),)

    def reset(self) -> None:
        """Forget the parts."""
        self._panes = {}
