"""Data frames in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.base import Operator
from millstream.plan.frames import SortFrame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.plan.nodes import Node

__all__ = ["SortedFrame"]

_BATCH_ROWS = 65_536


class SortedFrame(Operator):
    """All rows in order when the input ends; with a limit, never many more than that."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, SortFrame)
        self._spec = spec
        self._parts: list[pl.DataFrame] = []
        self._row_count = 0

    def process(self, rows: Any, port: int) -> Any:  # noqa: ARG002 - one input
        self._parts.append(rows)
        self._row_count += rows.height
        limit = self._spec.limit
        if limit is not None and self._row_count > 2 * limit + _BATCH_ROWS:
            self._parts = [self._in_order()]
            self._row_count = self._parts[0].height
        return []

    def finish(self) -> Iterator[Any]:
        if self._parts:
            yield from self._in_order().iter_slices(_BATCH_ROWS)
        self._parts = []

    def _in_order(self) -> pl.DataFrame:
        rows = pl.concat(self._parts).sort(
            self._spec.by,
            descending=list(self._spec.descending),
            maintain_order=True,
        )
        return rows if self._spec.limit is None else rows.head(self._spec.limit)
