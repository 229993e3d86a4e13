"""Find the centres of clouds of points.

What it shows: `cycle` over a data frame.  The points are read once and stay where they are;
every round sends the centres to all workers and a few sums back.

    millstream run examples/k_means.py --on local --workers 2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

CLOUDS = np.array([(-8.0, 3.0), (0.0, -5.0), (7.0, 4.0)])
POINTS = 30_000
SUMS = {"centre": pl.Int64, "x": pl.Float64, "y": pl.Float64, "count": pl.UInt32}


def scattered() -> pl.DataFrame:
    """Return points around the middles of the clouds; the same ones each time."""
    rng = np.random.default_rng(7)
    points = CLOUDS[rng.integers(0, 3, POINTS)] + rng.normal(0, 1, (POINTS, 2))
    return pl.DataFrame(points, schema=["x", "y"])


def nearest(
    centres: ms.RoundState[np.ndarray],
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a function that adds up the points nearest to each centre."""

    def sums(points: pl.DataFrame) -> pl.DataFrame:
        away = points.to_numpy()[:, None, :] - centres.value
        centre = pl.Series("centre", (away**2).sum(axis=2).argmin(axis=1))
        by_centre = points.with_columns(centre).group_by("centre")
        return by_centre.agg(pl.col("x", "y").sum(), count=pl.len())

    return sums


def moved(centres: np.ndarray, sums: pl.DataFrame) -> np.ndarray:
    """Return the middle of the points of each centre; one without points stays."""
    total = sums.group_by("centre").sum()
    middles = centres.copy()
    middles[total["centre"]] = total.select(pl.col("x", "y") / pl.col("count"))
    return middles


flow = ms.Flow("k-means")
points = flow.from_frame(scattered())
found = points.cycle(
    np.array([(-1.0, 0.0), (0.0, 0.0), (1.0, 0.0)]),
    lambda points, centres: points.map_batches(nearest(centres), schema=SUMS),
    moved,
    max_rounds=20,
)
# Sums come in any order, so the last digits differ from run to run.
centres = found.map(lambda middles: middles.round(6)).collect()

if __name__ == "__main__":
    flow.run()
    for x, y in centres.result()[0]:
        print(f"{x:6.2f} {y:6.2f}")
