"""A market that never looks the same twice, and always the same for the same seed.

Of 50 events one is a person, three are auctions and 46 are bids, as in NEXMark.  Half of
the bids are for one hot auction.  Twenty events at a time get out of order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from examples.nexmark.events import Auction, Bid, Event, Person

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUND, AUCTIONS = 50, 3
ORDER = (7, 0, 12, 3, 18, 5, 1, 15, 9, 2, 19, 11, 4, 14, 8, 17, 6, 13, 10, 16)
ACTIVE_AUCTIONS, ACTIVE_PEOPLE, HOT = 60, 40, 10
CATEGORIES, FIRST_CATEGORY = 5, 10
DURATIONS_MS = 1_000, 20_000
NAMES = ("Ada", "Bob", "Cyd", "Dan", "Eve", "Fay", "Gus", "Hal")
CITIES = ("Phoenix AZ", "Palo Alto CA", "Boise ID", "Portland OR", "Bend OR", "Kent WA")


@dataclass(frozen=True)
class Market:
    """So many events, at so many per second of event time."""

    events: int
    rate: int = 10
    seed: int = 7

    @property
    def out_of_order_ms(self) -> int:
        """By how much an event may be older than one before it."""
        return len(ORDER) * 1_000 // self.rate + 1

    def __call__(self, rank: int, size: int) -> Iterator[Event]:
        """Make every `size`-th event."""
        for place in range(rank, self.events, size):
            group, turn = divmod(place, len(ORDER))
            number = group * len(ORDER) + ORDER[turn]
            if number < self.events:  # the last group may not be full
                yield self.event(number)

    def event(self, number: int) -> Event:
        """Make the event with this number."""
        epoch, offset = divmod(number, ROUND)
        at = number * 1_000 // self.rate
        draw, other = divmod(self._draw(number), 1 << 24)
        if offset == 0:
            city, _, state = CITIES[draw % len(CITIES)].rpartition(" ")
            return Person(epoch, NAMES[other % len(NAMES)], city, state, at)
        if offset <= AUCTIONS:
            category = FIRST_CATEGORY + draw % CATEGORIES
            shortest, longest = DURATIONS_MS
            expires = at + shortest + other % (longest - shortest)
            seller = epoch - other % min(ACTIVE_PEOPLE, epoch + 1)
            return Auction(epoch * AUCTIONS + offset, seller, category, expires, at)
        newest = epoch * AUCTIONS + AUCTIONS
        is_hot, price = divmod(draw, 1 << 13)
        older = newest % HOT if is_hot % 2 else other % ACTIVE_AUCTIONS
        bidder = epoch - (other >> 8) % min(ACTIVE_PEOPLE, epoch + 1)
        return Bid(max(1, newest - older), bidder, 100 + price, at)

    def _draw(self, number: int) -> int:
        mixed = (number + self.seed) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        mixed = (mixed ^ mixed >> 29) * 0x94D049BB133111EB & (1 << 64) - 1
        return mixed >> 16
