"""Follow bank accounts: a running balance, and an alarm after three withdrawals.

What it shows: `scan`, which emits an aggregate after every record, and a stateful
function whose handles always stand for the state of the key at hand.

    millstream run examples/running_totals.py --on local
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOKINGS = [
    ("ada", 100), ("bob", 20), ("ada", -30), ("bob", -5), ("ada", -30),
    ("ada", -30), ("bob", 15), ("ada", 200), ("bob", -10), ("ada", -1),
]  # fmt: skip

TOO_MANY = 3


class Withdrawals(ms.StatefulFunction[str, int, str]):
    """Reports three withdrawals in a row, with their amounts."""

    amounts: ms.ListState[int] = ms.ListState()
    alarms: ms.ValueState[int] = ms.ValueState(default=0)

    def on_record(self, key: str, value: int) -> Iterator[str]:
        """Take one booking of an account."""
        if value >= 0:
            self.amounts.clear()
            return
        self.amounts.append(-value)
        if len(self.amounts) == TOO_MANY:
            self.alarms.update(self.alarms.get() + 1)
            yield f"alarm {self.alarms.get()} for {key}: {self.amounts.get()}"
            self.amounts.clear()


flow = ms.Flow("running-totals")
in_order = flow.from_iterable(BOOKINGS).max_parallelism(1)  # one task keeps the order
accounts = in_order.key_by(lambda booking: booking[0])
amounts = accounts.map(lambda booking: booking[1])
balances = amounts.scan(lambda balance, amount: balance + amount).collect()
alarms = amounts.process(Withdrawals()).drop_key().collect()

if __name__ == "__main__":
    flow.run()
    for account in ("ada", "bob"):
        history = [balance for name, balance in balances.result() if name == account]
        print(f"{account}: {' '.join(map(str, history))}")
    print(*alarms.result(), sep="\n")
