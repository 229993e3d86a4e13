"""The parts of aggregates: how each is made of rows, merged, and finished.

A part that is a few numbers per key lives in columns of the table of keys
(`ColumnPart`).  A part that is many items per key - distinct values, registers or bins
of a sketch - lives in a long table of its own, one row per key and item (`LongPart`), so
that merging is the same vectorised grouping.

Nothing here holds state or knows about operators.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import cloudpickle
import polars as pl

from millstream.plan.expressions import column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polars.datatypes import DataType

    from millstream.plan.expressions import Part, Tree

__all__ = [
    "BinsPart",
    "ColumnPart",
    "DistinctPart",
    "LongPart",
    "RegistersPart",
    "expression",
    "long_part",
    "part_in_columns",
    "user_part",
]

REGISTERS = 4096
_HASH_SEED = 0x6D74
_RANK_BITS = 52
_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
_SPARSE = 2.5

ACCURACY = 0.01
_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
# Bins of positive numbers are numbered around this, those of negative ones around its
# opposite; no finite number is as far away from 1 as _INFINITE - _ONE bins.
_ONE = 40_000
_INFINITE = 80_000
_NAN = 80_001


def expression(tree: Tree) -> pl.Expr:
    """Return the expression that Polars wrote as this tree."""
    return pl.Expr.deserialize(json.dumps(tree).encode(), format="json")


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """A part kept in columns of the table of keys.

    Attributes
    ----------
    partials
        Aggregates over rows; their names are the columns that are kept.
    merges
        Aggregates over those columns, under the same names.
    finish
        From those columns, row by row, the value of the part.
    """

    partials: tuple[pl.Expr, ...]
    merges: tuple[pl.Expr, ...]
    finish: pl.Expr


def part_in_columns(
    part: Part, name: str, source: DataType | None, result: DataType
) -> ColumnPart:
    """Return how a part is kept that needs a few numbers, or a list, per key."""
    match part.kind:
        case "Len" | "Count" | "NullCount":
            return _simple(name, expression(part.tree), pl.col(name).sum())
        case "HasNulls":
            return _simple(name, expression(part.tree), pl.col(name).any())
        case "Implode":
            values = pl.col(name).explode(empty_as_null=False).implode()
            return _simple(name, expression(part.tree), values)
        case "TopK":
            held = pl.col(name).explode(empty_as_null=False)
            again = _over(part, "").meta.serialize(format="json")
            tree = json.loads(again)
            merge = expression(tree)
            del held, merge
            raise AssertionError
        case "Mean":
            return _mean(part, name, source, result)
        case "Var" | "Std":
            return _variance(part, name)
        case "First" | "Last":
            return _end(part, name)
        case _:
            return _simple(name, expression(part.tree), _over(part, name))


def _over(part: Part, name: str) -> pl.Expr:
    return expression(part.over(column(name)))


def _simple(name: str, partial: pl.Expr, merge: pl.Expr) -> ColumnPart:
    return ColumnPart((partial.alias(name),), (merge.alias(name),), pl.col(name))
