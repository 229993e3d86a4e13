"""Queries about auctions that are over: a function with timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.nexmark.events import Auction, Bid, Event, auctions, bids

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterable

Won = tuple[Auction, Bid]


class Winning(ms.StatefulFunction[int, Auction | Bid, Won]):
    """Waits until an auction is over and names the highest bid."""

    auction: ms.ValueState[Auction] = ms.ValueState()
    bids: ms.ListState[Bid] = ms.ListState()

    def on_record(self, key: int, value: Auction | Bid) -> None:
        if isinstance(value, Auction):
            self.auction.update(value)
            self.timers.at_event_time(value.expires - 1)
        else:
            self.bids.append(value)
            if not self.auction.exists():  # it is over, or has yet to come
                self.timers.at_event_time(value.at)

    def on_timer(self, key: int, timer: ms.Timer) -> Iterable[Won]:
        auction = self.auction.get()
        if not self.auction.exists():
            self._forget(timer.time)
        elif timer.time == auction.expires - 1:
            valid = [b for b in self.bids if auction.at <= b.at < auction.expires]
            if valid:
                yield auction, min(valid, key=lambda b: (-b.price, b.at, b.bidder))
            self.auction.clear()
            self.bids.clear()

    def _forget(self, time: int) -> None:
        """Drop the bids whose auction cannot come any more."""
        left = [bid for bid in self.bids if bid.at > time]
        self.bids.update(left) if left else self.bids.clear()


def won(events: ms.Stream[Event]) -> ms.Stream[Won]:
    """Pair every auction with the bid that won it, when it is over."""
    offered: ms.Stream[Auction | Bid] = auctions(events)
    by_auction = offered.merge(bids(events)).key_by(
        lambda event: event.id if isinstance(event, Auction) else event.auction
    )
    return by_auction.process(Winning()).drop_key()


def q4(events: ms.Stream[Event]) -> ms.Stream[tuple[int, float]]:
    """Average the prices at which things of a category were sold."""
    by_category = won(events).group_by(
        lambda pair: pair[0].category, value=lambda pair: pair[1].price
    )
    return by_category.mean()


def q9(events: ms.Stream[Event]) -> ms.Stream[Bid]:
    """Name the winning bids."""
    return won(events).map(lambda pair: pair[1])
