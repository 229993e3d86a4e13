"""Remind customers who have left their cart alone for half an hour.

What it shows: timers of event time.  They fire when the timestamps of the records say so,
not the clock of the machine, so yesterday's log gives the same reminders as a live stream.
With `in_time_order` the function gets records and timers of a customer in one order, though
the records come out of order; at any number of workers the answer is the same.

    millstream run examples/abandoned_carts.py --on local --workers 2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE_MS = 60_000
PATIENCE_MS = 30 * MINUTE_MS


class Click(NamedTuple):
    """What a customer put into the cart, or that he paid, and in which minute."""

    minute: int
    customer: str
    what: str


CLICKS = [
    Click(0, "ada", "a pear"), Click(5, "bob", "a fig"), Click(3, "cyd", "a plum"),
    Click(9, "bob", "paid"), Click(20, "ada", "a plum"), Click(31, "cyd", "paid"),
    Click(26, "bob", "a pear"), Click(51, "ada", "paid"), Click(70, "cyd", "a fig"),
]  # fmt: skip


class Reminders(ms.StatefulFunction[str, Click, str]):
    """Keeps the cart of a customer, and when to remind him of it."""

    cart: ms.ListState[str] = ms.ListState()
    due: ms.ValueState[int] = ms.ValueState()

    def on_record(self, key: str, value: Click) -> None:
        """Put the reminder off, or forget about it."""
        assert self.timestamp is not None
        if self.due.exists():
            self.timers.cancel_event_time(self.due.get())
        if value.what == "paid":
            self.forget()
        else:
            self.cart.append(value.what)
            due = self.timers.at_event_time(self.timestamp + PATIENCE_MS)
            self.due.update(due)

    def on_timer(self, key: str, timer: ms.Timer) -> Iterator[str]:
        """Say what is in the cart, once."""
        items = " and ".join(self.cart.get())
        yield f"minute {timer.time // MINUTE_MS:3}: {key} has left {items}"
        self.forget()

    def forget(self) -> None:
        """Leave nothing behind."""
        self.cart.clear()
        self.due.clear()


flow = ms.Flow("abandoned-carts")
clicks = flow.from_iterable(CLICKS)
timed = clicks.event_time(lambda click: click.minute * MINUTE_MS, out_of_order="10m")
customers = timed.key_by(lambda click: click.customer)
reminders = customers.process(Reminders(), in_time_order=True).drop_key().collect()

if __name__ == "__main__":
    flow.run()
    print(*sorted(reminders.result()), sep="\n")
