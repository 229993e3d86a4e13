"""Frames that came too late, gathered until somebody takes them."""

from __future__ import annotations

from typing import Any

import polars as pl

__all__ = ["with_late"]


def with_late(before: Any, late: pl.DataFrame) -> Any:
    """Return rows that came too late, together with those that nobody has taken yet."""
    return late if len(before) == 0 else pl.concat([before, late])
