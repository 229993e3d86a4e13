"""Joins a frame with its own sums, which every task gets, and keeps unlike rows."""

from __future__ import annotations

import polars as pl

import millstream as ms

flow = ms.Flow("frame-join")
sales = flow.from_frame(
    pl.DataFrame({"shop": ["a", "b", "a", "c", "a"], "net": [1, 2, 3, 4, 1]}),
    name="sales",
)
totals = sales.group_by("shop").agg(pl.col("net").sum().alias("total"))
shares = sales.join(totals, "shop").unique().sort("shop", "net")
shares.to_rows().map(lambda row: list(row.values())).collect(name="shares")
