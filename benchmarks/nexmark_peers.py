"""Queries of NEXMark over tables: with Millstream's frames, and in SQL for Spark.

The columns of a result are those of the row query in `examples.nexmark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from examples.nexmark.joins import CATEGORY, STATES
from examples.nexmark.market import DURATIONS_MS

from millstream import windows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import millstream as ms

__all__ = ["FRAME_QUERIES", "SQL", "Tables"]

DISORDER = "1s"
"""More than the events have, so that nothing is late."""

LONGEST_MS = DURATIONS_MS[1]
"""No auction goes on for longer."""

WIDE = 1_000_000
"""More than there are bidders, and milliseconds of events."""


class Tables:
    """The tables of a flow, each read where it is used."""

    def __init__(self, flow: ms.Flow, directory: Path) -> None:
        self._flow = flow
        self._directory = directory

    @property
    def bids(self) -> ms.Frame:
        """Who bid how much for which auction, and when."""
        return self._flow.read_parquet(self._directory / "bid.parquet")

    @property
    def auctions(self) -> ms.Frame:
        """Who sells what, from when to when."""
        return self._flow.read_parquet(self._directory / "auction.parquet")

    @property
    def people(self) -> ms.Frame:
        """Who came when, and from where."""
        return self._flow.read_parquet(self._directory / "person.parquet")


def timed(frame: ms.Frame) -> ms.Frame:
    """Give a table the time at which its events were."""
    return frame.event_time("at", out_of_order=DISORDER)


def q1(tables: Tables) -> ms.Frame:
    """Convert the prices of bids to euros."""
    return tables.bids.with_columns(price=pl.col("price") * 908 // 1000)


def q2(tables: Tables) -> ms.Frame:
    """Select bids for some auctions."""
    wanted = tables.bids.filter(pl.col("auction") % 123 == 0)
    return wanted.select("auction", "price")


def q3(tables: Tables) -> ms.Frame:
    """Suggest local items: who in three states sells something of one category."""
    local = tables.people.filter(pl.col("state").is_in(sorted(STATES)))
    offered = tables.auctions.filter(pl.col("category") == CATEGORY)
    offered = offered.select("seller", item=pl.col("id"))
    pairs = local.keyed_join(offered, left_on="id", right_on="seller", ttl="24h")
    return pairs.select("name", "city", "state", "item")


def q4(tables: Tables) -> ms.Frame:
    """Average the prices at which things of a category were sold."""
    sold = valid_bids(tables).group_by("auction", "category")
    return (
        sold.agg(pl.col("price").max()).group_by("category").agg(pl.col("price").mean())
    )


def q5(tables: Tables) -> ms.Frame:
    """Find the auctions with the most bids of ten seconds, every two."""
    by_auction = timed(tables.bids).group_by("auction")
    counts = by_auction.window(windows.sliding("10s", "2s")).agg(count=pl.len())
    most = counts.group_by("window_end").agg(pl.col("count").max())
    hot = counts.join(most, ["window_end", "count"], how="semi")
    return hot.select("window_end", "auction", "count")


def q7(tables: Tables) -> ms.Frame:
    """Find the highest bids of every ten seconds."""
    bids = tables.bids
    tens = timed(bids).window(windows.tumbling("10s"))
    highest = tens.agg(pl.col("price").max())
    start = pl.col("at") - pl.col("at") % 10_000
    return (
        bids.with_columns(window_start=start)
        .join(highest, ["window_start", "price"], how="semi")
        .drop("window_start")
    )


def q8(tables: Tables) -> ms.Frame:
    """Monitor new users: who joined and offered something in the same ten seconds."""
    joined, offered = timed(tables.people), timed(tables.auctions)
    tens = windows.tumbling("10s")
    active = joined.window_join(
        offered, tens, left_on="id", right_on="seller", how="semi"
    )
    return active.select("id", "name")


def q9(tables: Tables) -> ms.Frame:
    """Name the winning bids: the highest, of these the first, of these one bidder's."""
    first, least = WIDE - 1 - pl.col("at"), WIDE - 1 - pl.col("bidder")
    place = pl.col("price") * WIDE * WIDE + first * WIDE + least
    placed = valid_bids(tables).select("auction", place=place)
    best = placed.group_by("auction").agg(pl.col("place").max())
    place = pl.col("place")
    return best.select(
        "auction",
        bidder=WIDE - 1 - place % WIDE,
        price=place // (WIDE * WIDE),
        at=WIDE - 1 - place // WIDE % WIDE,
    )


def valid_bids(tables: Tables) -> ms.Frame:
    """Return the bids for auctions that were going on."""
    offered = tables.auctions.rename({"id": "auction"})
    both = timed(offered).interval_join(
        timed(tables.bids), 0, LONGEST_MS, on="auction", suffix="_bid"
    )
    valid = both.filter(pl.col("at_bid") < pl.col("expires"))
    return valid.select("auction", "category", "bidder", "price", at=pl.col("at_bid"))


def q11(tables: Tables) -> ms.Frame:
    """Count the bids of everybody's sessions, which end with a pause of ten seconds."""
    sessions = timed(tables.bids).group_by("bidder").window(windows.session("10s"))
    return sessions.agg(bids=pl.len()).select("bidder", "bids")


def q12(tables: Tables) -> ms.Frame:
    """Count everybody's bids of every ten seconds of the clock, not of event time."""
    tens = windows.tumbling("10s", time="processing")
    counts = tables.bids.group_by("bidder").window(tens).agg(bids=pl.len())
    return counts.select("bidder", "bids")


FRAME_QUERIES: dict[str, Callable[[Tables], ms.Frame]] = {
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q4": q4,
    "q5": q5,
    "q7": q7,
    "q8": q8,
    "q9": q9,
    "q11": q11,
    "q12": q12,
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
