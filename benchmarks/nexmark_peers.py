"""Queries of NEXMark over tables: with Millstream's frames, and in SQL for Spark.

The columns of a result are those of the row query in `examples.nexmark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from millstream import windows

if TYPE_CHECKING:
    from collections.abc import Callable

    import millstream as ms

__all__ = ["FRAME_QUERIES", "SQL"]

DISORDER = "1s"
"""More than the events have, so that nothing is late."""


def q1(bids: ms.Frame) -> ms.Frame:
    """Convert the prices of bids to euros."""
    return bids.with_columns(price=pl.col("price") * 908 // 1000)


def q2(bids: ms.Frame) -> ms.Frame:
    """Select bids for some auctions."""
    return bids.filter(pl.col("auction") % 123 == 0).select("auction", "price")


def q5(bids: ms.Frame) -> ms.Frame:
    """Find the auctions with the most bids of ten seconds, every two."""
    by_auction = bids.event_time("at", disorder=DISORDER).group_by("auction")
    counts = by_auction.window(windows.sliding("10s", "2s")).agg(count=pl.len())
    most = counts.group_by("window_end").agg(pl.col("count").max())
    hot = counts.join(most, ["window_end", "count"], how="semi")
    return hot.select("window_end", "auction", "count")


def q7(bids: ms.Frame) -> ms.Frame:
    """Find the highest bids of every ten seconds."""
    tens = bids.event_time("at", disorder=DISORDER).window(windows.tumbling("10s"))
    highest = tens.agg(pl.col("price").max())
    start = pl.col("at") - pl.col("at") % 10_000
    return (
        bids.with_columns(window_start=start)
        .join(highest, ["window_start", "price"], how="semi")
        .drop("window_start")
    )


FRAME_QUERIES: dict[str, Callable[[ms.Frame], ms.Frame]] = {
    "q1": q1,
    "q2": q2,
    "q5": q5,
    "q7": q7,
}

SQL = {
    "q1": "SELECT auction, bidder, price * 908 div 1000 AS price, at FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM person p JOIN auction a
        ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category, avg(price) FROM (
            SELECT a.category, max(b.price) AS price FROM bid b JOIN auction a
            ON b.auction = a.id AND b.at >= a.at AND b.at < a.expires
            GROUP BY a.id, a.category
        ) GROUP BY category
    """,
    "q5": """
        WITH counts AS (
            SELECT window.end, auction, count(*) AS bids FROM bid
            GROUP BY auction, window(timestamp_millis(at), '10 seconds', '2 seconds')
        )
        SELECT end, auction, bids FROM counts JOIN (
            SELECT end, max(bids) AS bids FROM counts GROUP BY end
        ) USING (end, bids)
    """,
    "q7": """
        SELECT auction, bidder, price, at FROM bid JOIN (
            SELECT at div 10000 AS ten, max(price) AS highest FROM bid
            GROUP BY at div 10000
        ) ON at div 10000 = ten AND price = highest
    """,
    "q8": """
        SELECT id, name FROM person p LEFT SEMI JOIN auction a
        ON a.seller = p.id AND a.at div 10000 = p.at div 10000
    """,
    "q9": """
        SELECT auction, bidder, price, at FROM (
            SELECT b.*, row_number() OVER (
                PARTITION BY b.auction ORDER BY b.price DESC, b.at, b.bidder
            ) AS place FROM bid b JOIN auction a
            ON b.auction = a.id AND b.at >= a.at AND b.at < a.expires
        ) WHERE place = 1
    """,
    "q11": """
        SELECT bidder, count(*) AS bids FROM bid
        GROUP BY bidder, session_window(timestamp_millis(at), '10 seconds')
    """,
}
