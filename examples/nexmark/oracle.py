"""The answers of the queries without windows, from a list of all events, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from examples.nexmark.events import Auction, Bid, Event, Person

if TYPE_CHECKING:
    from collections.abc import Iterable

Rows = list[Any]
LOCAL, LOCAL_CATEGORY = {"OR", "ID", "CA"}, 10


def of_kind(events: Iterable[Event], kind: type) -> Rows:
    """Return the people, the auctions or the bids."""
    return [event for event in events if isinstance(event, kind)]


def q0(events: list[Event]) -> Rows:
    """Return everything."""
    return list(events)


def q1(events: list[Event]) -> Rows:
    """Return every bid in euros."""
    return [
        Bid(bid.auction, bid.bidder, bid.price * 908 // 1000, bid.at)
        for bid in of_kind(events, Bid)
    ]


def q2(events: list[Event]) -> Rows:
    """Return auction and price of the bids for some auctions."""
    bids = of_kind(events, Bid)
    return [(bid.auction, bid.price) for bid in bids if bid.auction % 123 == 0]


def q3(events: list[Event]) -> Rows:
    """Find who in three states sells something of category 10."""
    people = {person.id: person for person in of_kind(events, Person)}
    found = []
    for auction in of_kind(events, Auction):
        seller = people.get(auction.seller)
        if seller and auction.category == LOCAL_CATEGORY and seller.state in LOCAL:
            found.append((seller.name, seller.city, seller.state, auction.id))
    return found


def q4(events: list[Event]) -> Rows:
    """Compute the mean price at which things of a category were sold."""
    category_of = {auction.id: auction.category for auction in of_kind(events, Auction)}
    prices: dict[int, list[int]] = defaultdict(list)
    for bid in q9(events):
        prices[category_of[bid.auction]].append(bid.price)
    return [(category, sum(all_) / len(all_)) for category, all_ in prices.items()]


def q9(events: list[Event]) -> Rows:
    """Find the bid that won each auction: the highest, of several the first."""
    bids = sorted(
        of_kind(events, Bid), key=lambda bid: (-bid.price, bid.at, bid.bidder)
    )
    won: dict[int, Bid] = {}
    auctions = {auction.id: auction for auction in of_kind(events, Auction)}
    for bid in bids:
        auction = auctions.get(bid.auction)
        if auction and auction.at <= bid.at < auction.expires:
            won.setdefault(bid.auction, bid)
    return list(won.values())
