"""Find orders that were not paid in time, and what the others were worth.

What it shows: event time with rows out of order, an interval join whose unmatched rows
come out as soon as no payment can arrive any more, a table of prices as it was at the
time of the order, and a payment that came too late.

    millstream run examples/unpaid_orders.py --on local --workers 2
"""

from __future__ import annotations

from typing import NamedTuple

import millstream as ms

HOUR = 3_600_000


class Order(NamedTuple):
    """So many boxes of an article."""

    number: str
    article: str
    boxes: int
    hour: int


class Payment(NamedTuple):
    """The payment of an order."""

    number: str
    hour: int


class Price(NamedTuple):
    """What a box costs from an hour on."""

    article: str
    euros: int
    hour: int


ORDERS = [
    Order("1", "tea", 2, 1),
    Order("3", "salt", 5, 9),
    Order("2", "tea", 1, 8),
    Order("4", "tea", 3, 11),
]
PAYMENTS = [Payment("1", 5), Payment("2", 20), Payment("4", 30), Payment("3", 10)]
PRICES = [Price("tea", 10, 0), Price("salt", 3, 0), Price("tea", 12, 6)]

flow = ms.Flow("unpaid-orders")
orders = flow.from_iterable(ORDERS, name="orders").event_time(
    lambda order: order.hour * HOUR, out_of_order="2h"
)
payments = flow.from_iterable(PAYMENTS, name="payments").event_time(
    lambda payment: payment.hour * HOUR, out_of_order="12h"
)
prices = flow.from_iterable(PRICES, name="prices").event_time(
    lambda price: price.hour * HOUR
)

by_article = orders.key_by(lambda order: order.article)
priced = by_article.join_table(prices.key_by(lambda price: price.article)).drop_key()
bills = priced.key_by(lambda bill: bill[0].number)
paid = bills.interval_join(
    payments.key_by(lambda payment: payment.number), 0, "24h", how="left"
)
rows, late = paid.drop_key().collect(), paid.late().collect()

if __name__ == "__main__":
    flow.run()
    for (order, price), payment in sorted(rows.result(), key=str):
        when = f"paid in hour {payment.hour}" if payment else "not paid in time"
        print(f"order {order.number}: {order.boxes * price.euros:3} euros, {when}")
    print("too late:", [row.value.number for row in late.result()])
