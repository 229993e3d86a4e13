"""Parts of aggregates that are many items per key: distinct values, and sketches.

Items live in a long table, one row per key and item, so that merging them is the same
vectorised grouping as that of the table of keys.

Nothing here holds state or knows about operators.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import polars as pl

from millstream.columns.partials import keeps_length

__all__ = ["BinsPartial", "DistinctPartial", "MultiRowPartial", "RegistersPartial"]

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


@dataclass(frozen=True, slots=True)
class MultiRowPartial(ABC):
    """A part kept in a table with one row per key and item; the base of all such.

    The columns of that table are the keys, `item`, and those of `merges`.
    """

    name: str
    values: pl.Expr

    @property
    def item(self) -> str:
        """Name of the column that is a key beside the keys."""
        return f"{self.name}.item"

    @property
    def weight(self) -> str:
        """Name of the column that tells something about the item."""
        return f"{self.name}.weight"

    @property
    @abstractmethod
    def merges(self) -> tuple[pl.Expr, ...]:
        """Aggregates over the rows of the same key and item."""

    @property
    def default(self) -> int | None:
        """The value of the part for a key without items."""
        return 0

    @abstractmethod
    def rows(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        """Return the table for a batch of rows."""

    @abstractmethod
    def finish(self, table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        """Return the value of the part, under its name, for every key that has items."""

    def _valued(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        """Return keys and values, one row each; a filter may have left some out."""
        values = self.values.alias(self.item)
        if keeps_length(self.values):
            return frame.select(*keys, values)
        lists = frame.group_by(keys).agg(values.implode())
        return lists.explode(self.item, empty_as_null=False)


class DistinctPartial(MultiRowPartial):
    """The different values, null among them."""

    __slots__ = ()

    @property
    def merges(self) -> tuple[pl.Expr, ...]:
        return ()

    def rows(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        return self._valued(frame, keys).group_by(*keys, self.item).agg()

    def finish(self, table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        return table.group_by(keys).agg(pl.len().alias(self.name))


class RegistersPartial(MultiRowPartial):
    """HyperLogLog: how rare the rarest hash was, in each of 4096 registers."""

    __slots__ = ()

    @property
    def merges(self) -> tuple[pl.Expr, ...]:
        return (pl.col(self.weight).max(),)

    def rows(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        bits = pl.lit(2**_RANK_BITS, pl.UInt64)
        hashes = pl.col(self.item)
        zeros = (hashes % bits).bitwise_leading_zeros().cast(pl.Int16)
        return (
            self._valued(frame, keys)
            .with_columns(hashes.hash(_HASH_SEED))
            .select(
                *keys,
                (hashes // bits).cast(pl.UInt16),
                (zeros - (63 - _RANK_BITS)).cast(pl.UInt8).alias(self.weight),
            )
            .group_by(*keys, self.item)
            .agg(self.merges)
        )

    def finish(self, table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        ranks = pl.col(self.weight).cast(pl.Float64)
        used, powers = f"{self.name}.used", f"{self.name}.powers"
        unused = REGISTERS - pl.col(used).cast(pl.Int64)
        raw = _ALPHA * REGISTERS**2 / (pl.col(powers) + unused)
        linear = REGISTERS * (REGISTERS / unused).log()
        is_sparse = (raw <= _SPARSE * REGISTERS) & (unused > 0)
        estimate = pl.when(is_sparse).then(linear).otherwise(raw).round()
        return (
            table.group_by(keys)
            .agg(pl.len().alias(used), (-ranks * math.log(2)).exp().sum().alias(powers))
            .select(*keys, estimate.cast(pl.UInt32).alias(self.name))
        )


@dataclass(frozen=True, slots=True)
class BinsPartial(MultiRowPartial):
    """Counts in bins whose bounds grow by 2 %: any quantile within 1 % of its value."""

    quantile: float

    @property
    def default(self) -> int | None:
        return None

    @property
    def merges(self) -> tuple[pl.Expr, ...]:
        return (pl.col(self.weight).sum(),)

    def rows(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        values = pl.col(self.item)
        return (
            self._valued(frame, keys)
            .filter(values.is_not_null())
            .with_columns(_bin(values.cast(pl.Float64)).alias(self.item))
            .group_by(*keys, self.item)
            .agg(pl.len().cast(pl.UInt64).alias(self.weight))
        )

    def finish(self, table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        counts = pl.col(self.weight)
        rank = self.quantile * (counts.sum() - 1)
        chosen = pl.col(self.item).filter(counts.cum_sum() > rank).first()
        return (
            table.sort(self.item)
            .group_by(keys)
            .agg(chosen)
            .select(*keys, _middle(pl.col(self.item)).alias(self.name))
        )


def _bin(values: pl.Expr) -> pl.Expr:
    """Return the number of the bin; the numbers are in the order of the values."""
    power = (values.abs().log() / math.log(_GAMMA)).ceil()
    number = power.clip(-_ONE + 1, _INFINITE - _ONE) + _ONE
    return (
        pl.when(values.is_nan())
        .then(_NAN)
        .when(values == 0)
        .then(0)
        .otherwise(number * values.sign())
        .cast(pl.Int32)
    )


def _middle(bins: pl.Expr) -> pl.Expr:
    """Return the value of a bin from which none of its values is farther than 1 %."""
    power = bins.abs() - _ONE
    size = (power.cast(pl.Float64) * math.log(_GAMMA)).exp() * (2 / (_GAMMA + 1))
    return (
        pl.when(bins == _NAN)
        .then(float("nan"))
        .when(bins == 0)
        .then(0.0)
        .when(bins.abs() == _INFINITE)
        .then(bins.sign() * float("inf"))
        .otherwise(size * bins.sign())
        .cast(pl.Float64)
    )
