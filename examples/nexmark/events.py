"""What happens on the auction site: somebody joins, offers something, or bids for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import millstream as ms


class Person(NamedTuple):
    """Somebody who has joined."""

    id: int
    name: str
    city: str
    state: str
    at: int


class Auction(NamedTuple):
    """Something that is for sale from `at` until just before `expires`."""

    id: int
    seller: int
    category: int
    expires: int
    at: int


class Bid(NamedTuple):
    """What somebody would pay."""

    auction: int
    bidder: int
    price: int
    at: int


Event = Person | Auction | Bid


def people(events: ms.Stream[Event]) -> ms.Stream[Person]:
    """Take those who joined."""
    return events.filter_map(lambda e: e if isinstance(e, Person) else None)


def auctions(events: ms.Stream[Event]) -> ms.Stream[Auction]:
    """Take what is for sale."""
    return events.filter_map(lambda e: e if isinstance(e, Auction) else None)


def bids(events: ms.Stream[Event]) -> ms.Stream[Bid]:
    """Take the bids."""
    return events.filter_map(lambda e: e if isinstance(e, Bid) else None)
