"""Frames that came too late, gathered until somebody takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from millstream.values import Batch

__all__ = ["with_late"]


def with_late(before: Batch, late: pl.DataFrame) -> pl.DataFrame:
    """Return rows that came too late, together with those that nobody has taken yet."""
    return late if isinstance(before, list) else pl.concat([before, late])
