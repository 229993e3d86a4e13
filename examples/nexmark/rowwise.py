"""Queries that look at one event at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.nexmark.events import Bid, Event, bids

if TYPE_CHECKING:
    import millstream as ms

CENTS_PER_DOLLAR, SOME = 908, 123


def q0(events: ms.Stream[Event]) -> ms.Stream[Event]:
    """Pass everything on: what the engine costs."""
    return events


def q1(events: ms.Stream[Event]) -> ms.Stream[Bid]:
    """Convert the prices of bids to euros."""
    return bids(events).map(
        lambda bid: bid._replace(price=bid.price * CENTS_PER_DOLLAR // 1000)
    )


def q2(events: ms.Stream[Event]) -> ms.Stream[tuple[int, int]]:
    """Select bids for some auctions."""
    some = bids(events).filter(lambda bid: bid.auction % SOME == 0)
    return some.map(lambda bid: (bid.auction, bid.price))
