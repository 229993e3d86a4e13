"""A user function over the rows of every window of a data frame.

Windows come as rows, each with its own rows in a list.  Nothing here knows when a window is
over, or in which order its rows are.
"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from millstream.operators.base import OneInputOperator
from millstream.plan.frame_windows import HIDDEN, MapWindow
from millstream.plan.windows import Window
from millstream.protocol.watermark import BEGINNING, END_OF_TIME

if TYPE_CHECKING:
    from millstream.plan.logical import Node

__all__ = ["FrameMapWindowOperator"]

_EVERYTHING = Window(BEGINNING, END_OF_TIME)


class FrameMapWindowOperator(OneInputOperator):
    """Calls the function once for every window; what it returns has the window's time."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, MapWindow)
        self._spec = spec

    def process(self, rows: Any) -> Any:
        function, lists = self._spec.function, rows[self._spec.rows]
        inside = lists.explode(empty_as_null=False).struct.unnest()
        sizes = lists.list.len().cast(pl.Int64)
        begins = (sizes.cum_sum() - sizes).to_list()
        made: list[pl.DataFrame] = []
        rows_iterator = iter(self._windows(rows))
        following = zip(rows_iterator, begins, sizes.to_list(), strict=True)
        for window, begin, size in following:
            result = function(window, inside.slice(begin, size))
            self._check(result, window, rows, len(made))
            made.append(result)
        result = pl.concat(made)
        if not self.nodes[0].takes_times:
            return result
        heights = [each.height for each in made]
        places = np.repeat(np.arange(rows.height), heights)
        return result.hstack(rows.select(HIDDEN)[places])

    def _windows(self, rows: pl.DataFrame) -> list[Window]:
        bounds = self._spec.bounds
        if bounds is None:
            return [_EVERYTHING] * rows.height
        return list(starmap(Window, rows.select(pl.col(bounds).to_physical()).rows()))

    def _check(
        self, result: Any, window: Window, rows: pl.DataFrame, index: int
    ) -> None:
        """Refuse what is not a data frame with the columns that were announced."""
        if isinstance(result, pl.DataFrame) and result.schema == self._spec.schema:
            return
        keys = rows.select(self._spec.keys)
        key = f" of key {keys.row(index, named=True)}" if keys.width else ""
        what = f"the function of {self.nodes[0].name!r} returned"
        if not isinstance(result, pl.DataFrame):
            msg = (
                f"{what} {type(result).__name__} for {window}{key}, and must return a "
                "Polars DataFrame"
            )
            raise TypeError(msg)
        msg = (
            f"{what} columns {dict(result.schema)} for {window}{key}, but "
            f"{dict(self._spec.schema)} were announced; name what it returns in schema="
        )
        raise TypeError(msg)
