"""Reads a file for two branches: columns that neither of them needs are not read."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import millstream as ms

flow = ms.Flow("needed-columns", buffer=ms.fixed(64))
sales = flow.read_csv(Path(__file__).with_suffix(".csv"))
totals = sales.group_by("shop").agg(pl.len(), pl.col("price").sum())
totals.to_rows().map(lambda row: list(row.values())).collect(name="totals")
large = sales.filter(pl.col("price") > 2).select("shop", weight=pl.col("grams") / 1000)
large.to_rows().map(lambda row: list(row.values())).collect(name="large")
