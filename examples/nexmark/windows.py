"""Queries over windows: sliding, tumbling, sessions, and windows by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from examples.nexmark.events import Bid, Event, bids

from millstream import windows

if TYPE_CHECKING:
    import millstream as ms

T = TypeVar("T")

Best = tuple[int, list[T]]
"""A number, and all that reached it."""


def better(left: Best[T], right: Best[T]) -> Best[T]:
    """Keep what is best; of equals, all."""
    if left[0] == right[0]:
        return left[0], left[1] + right[1]
    return max(left, right, key=lambda best: best[0])


def q5(events: ms.Stream[Event]) -> ms.Stream[tuple[int, int, int]]:
    """Find hot items: the auctions with the most bids of ten seconds, every two."""
    by_auction = bids(events).key_by(lambda bid: bid.auction)
    counts = by_auction.window(windows.sliding("10s", "2s")).count().unkey()
    # The results of a window have its last millisecond as their time, so that those of
    # all auctions meet in the same two seconds.
    most = counts.map(lambda pair: (pair[1], [pair[0]])).window(windows.tumbling("2s"))
    return most.with_window().reduce(better).flat_map(hot)


def hot(found: tuple[windows.Window, Best[int]]) -> list[tuple[int, int, int]]:
    """Say when, what, and how often."""
    window, (count, auctions) = found
    return [(window.end, auction, count) for auction in auctions]


def q7(events: ms.Stream[Event]) -> ms.Stream[Bid]:
    """Find the highest bids of every ten seconds: first of each auction, then of all."""
    tens = windows.tumbling("10s")
    by_auction = bids(events).key_by(lambda bid: bid.auction)
    nothing: Best[Bid] = (0, [])
    highest = by_auction.window(tens).fold(nothing, higher, merge=better).drop_key()
    return highest.window(tens).reduce(better).flat_map(lambda best: best[1])


def higher(best: Best[Bid], bid: Bid) -> Best[Bid]:
    """Keep the highest bids."""
    return best if bid.price < best[0] else better(best, (bid.price, [bid]))


def q11(events: ms.Stream[Event]) -> ms.Stream[tuple[int, int]]:
    """Count the bids of everybody's sessions, which end with a pause of ten seconds."""
    by_bidder = bids(events).key_by(lambda bid: bid.bidder)
    return by_bidder.window(windows.session("10s")).count().unkey()


def q12(events: ms.Stream[Event]) -> ms.Stream[tuple[int, int]]:
    """Count everybody's bids of every ten seconds of the clock, not of event time."""
    by_bidder = bids(events).key_by(lambda bid: bid.bidder)
    return by_bidder.window(windows.tumbling("10s", time="processing")).count().unkey()
