"""Queries that bring people and their auctions together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.nexmark.events import Auction, Event, Person, auctions, people

from millstream import windows

if TYPE_CHECKING:
    import millstream as ms

CATEGORY, STATES = 10, {"OR", "ID", "CA"}


def q3(events: ms.Stream[Event]) -> ms.Stream[tuple[str, str, str, int]]:
    """Suggest local items: who in three states sells something of one category."""
    local = people(events).filter(lambda person: person.state in STATES)
    offered = auctions(events).filter(lambda auction: auction.category == CATEGORY)
    sellers = local.key_by(lambda person: person.id)
    # NEXMark forgets nobody; we keep people and items for a day.
    pairs = sellers.join(offered.key_by(lambda auction: auction.seller), ttl="24h")
    return pairs.drop_key().map(item)


def item(pair: tuple[Person, Auction]) -> tuple[str, str, str, int]:
    """Say who offers what."""
    person, auction = pair
    return person.name, person.city, person.state, auction.id


def q8(events: ms.Stream[Event]) -> ms.Stream[tuple[int, str]]:
    """Monitor new users: who joined and offered something in the same ten seconds."""
    joined = people(events).key_by(lambda person: person.id)
    offered = auctions(events).key_by(lambda auction: auction.seller)
    active = joined.window_join(offered, windows.tumbling("10s"), how="semi")
    return active.drop_key().map(lambda person: (person.id, person.name))
