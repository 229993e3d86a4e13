"""Rows of a frame whose key was not seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.base import Operator
from millstream.plan.frames import UniqueFrame
from millstream.state.keyindex import KeyIndex

if TYPE_CHECKING:
    from millstream.plan.nodes import Node

__all__ = ["DistinctRows"]


class DistinctRows(Operator):
    """The first row of every key, as soon as it comes; remembers all keys."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, UniqueFrame)
        self._keys = spec.keys
        self._index: KeyIndex | None = None

    def process(self, rows: Any, port: int) -> Any:  # noqa: ARG002 - one input
        if self._index is None:
            self._index = KeyIndex({key: rows.schema[key] for key in self._keys})
        firsts = rows.unique(self._keys, keep="first", maintain_order=True)
        known = len(self._index)
        return firsts.filter(pl.Series(self._index.slots(firsts) >= known))
