"""Find the shortest way from one town to all others.

What it shows: `delta_iterate` over a data frame.  Towns whose distance got shorter are
joined with the roads; what comes out is compared with what is known, by key.

    millstream run examples/shortest_paths.py --on local --workers 2
"""

from __future__ import annotations

import polars as pl

import millstream as ms

ROADS = pl.DataFrame(
    [
        ("mill", "ford", 4),
        ("mill", "hill", 1),
        ("hill", "ford", 2),
        ("ford", "lake", 5),
        ("hill", "lake", 9),
        ("lake", "moor", 3),
    ],
    schema=["town", "next", "km"],
    orient="row",
)


def onward(shorter: ms.Frame) -> ms.Frame:
    """Return where one gets from the towns to which there is a shorter way."""
    roads = ROADS.rename({"km": "more"})
    going = shorter.join(roads, "town")
    return going.select(town="next", km=pl.col("km") + pl.col("more"))


flow = ms.Flow("shortest-paths")
start = flow.from_frame(pl.DataFrame({"town": ["mill"], "km": [0]}))
distances = start.delta_iterate("town", pl.col("km").min(), onward).collect()

if __name__ == "__main__":
    flow.run()
    for town, km in distances.result().sort("km").rows():
        print(f"{town} {km:3} km")
