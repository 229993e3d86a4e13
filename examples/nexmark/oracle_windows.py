"""The answers of the queries with windows, from a list of all events, in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from examples.nexmark.events import Auction, Bid, Event, Person
from examples.nexmark.oracle import Rows, of_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

SECOND = 1_000


def q5(events: list[Event]) -> Rows:
    """Find the auctions with the most bids of ten seconds, every two seconds."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in of_kind(events, Bid):
        for end in range(bid.at // 2_000 * 2_000 + 2_000, bid.at + 10_001, 2_000):
            counts[end][bid.auction] += 1
    return [
        (end, auction, count)
        for end, by_auction in counts.items()
        for auction, count in by_auction.items()
        if count == max(by_auction.values())
    ]


def q7(events: list[Event]) -> Rows:
    """Find the highest bids of every ten seconds."""
    highest: dict[int, int] = {}
    bids = of_kind(events, Bid)
    for bid in bids:
        highest[bid.at // 10_000] = max(bid.price, highest.get(bid.at // 10_000, 0))
    return [bid for bid in bids if bid.price == highest[bid.at // 10_000]]


def q8(events: list[Event]) -> Rows:
    """Find who joined and offered something in the same ten seconds."""
    offered = {(a.seller, a.at // 10_000) for a in of_kind(events, Auction)}
    return [
        (person.id, person.name)
        for person in of_kind(events, Person)
        if (person.id, person.at // 10_000) in offered
    ]


def q11(events: list[Event]) -> Rows:
    """Count how often everybody bid between two pauses of ten seconds or more."""
    times: dict[int, list[int]] = defaultdict(list)
    for bid in sorted(of_kind(events, Bid), key=lambda bid: bid.at):
        times[bid.bidder].append(bid.at)
    return [
        (bidder, end - start)
        for bidder, seen in times.items()
        for start, end in pairwise([0, *pauses(seen), len(seen)])
    ]


def pauses(times: list[int]) -> Iterable[int]:
    """Return the places of what comes after a pause."""
    return (i for i, (a, b) in enumerate(pairwise(times), 1) if b - a >= 10 * SECOND)


def q12(events: list[Event]) -> Rows:
    """Count how often everybody bid in all; when that is counted is not for us to know."""
    return list(Counter(bid.bidder for bid in of_kind(events, Bid)).items())
