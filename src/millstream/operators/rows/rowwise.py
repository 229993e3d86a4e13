"""Stateless operators: a fused run of row functions, and a function over batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.base import OneInputOperator, Rows
from millstream.operators.rows.fuse import fuse
from millstream.plan.nodes import MapBatches

if TYPE_CHECKING:
    from millstream.plan.logical import Node

__all__ = ["FusedRowOperator", "MapBatchesOperator"]


class FusedRowOperator(OneInputOperator):
    """Any run of `map`, `filter`, `flat_map` and their kin, as one function."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        self.fused = fuse(nodes)
        self._function = self.fused.function

    def process(self, rows: Rows) -> Rows:
        result: Rows = self._function(rows)
        return result


class MapBatchesOperator(OneInputOperator):
    """A user function over whole batches."""

    is_guarded = True

    def process(self, rows: Rows) -> Rows:
        spec = self.nodes[0].spec
        assert isinstance(spec, MapBatches)
        # The function may change its list; others may read the same batch.
        result: object = spec.function(rows.copy())
        if not isinstance(result, list):
            msg = (
                f"the function of map_batches must return a list of rows, "
                f"got {type(result).__name__}"
            )
            raise TypeError(msg)
        return result
