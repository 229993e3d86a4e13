"""Queries that look at one row at a time, and how that is found out."""

from __future__ import annotations

import polars as pl

import millstream as ms


def test_a_division_looks_at_one_row() -> None:
    """Though Polars rounds the quotient of one row otherwise than those of many."""
    flow = ms.Flow("division")
    grams = flow.from_frame(pl.DataFrame({"grams": [1500, 250]}))
    kilograms = grams.select(pl.col("grams") / 1000).collect()
    flow.run(on="local")

    assert kilograms.result()["grams"].to_list() == [1.5, 0.25]
