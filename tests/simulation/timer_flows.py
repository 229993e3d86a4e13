"""Flows whose functions set timers, for jobs that take snapshots.

What a timer of event time says depends on timestamps alone, so its rows must be those of
plain Python, to the last one.  A timer of processing time fires whenever the clock of some
worker says so; there every record must be counted once, in whichever part.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.simulation.flows import Case, same

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.flows import Rows

COUNT = 72
KEYS = 5
EVERY = 20
DISORDER = 6
GAP = 15


def moment(number: int) -> int:
    """Return the timestamp of a record: out of order, some of them twice."""
    return number * 3 + (number * 7) % DISORDER - number % 2


def spread(rank: int, size: int) -> range:
    """Deal the numbers out to the tasks of a source."""
    return range(rank, COUNT, size)


class EveryTwenty(ms.StatefulFunction[int, int, Any]):
    """Says at every full twenty how many records came before it, while some come."""

    moments = ms.MapState[int, int]()
    cancelled = ms.ValueState[int](default=0)

    def on_record(self, key: int, value: int) -> Iterator[Any]:
        assert self.timestamp is not None
        self.moments.update(value, self.timestamp)
        following = self.timestamp // EVERY * EVERY + EVERY
        self.timers.at_event_time(following)
        # One that nobody wants, and another that comes and goes.
        self.timers.at_event_time(following + 1)
        self.timers.cancel_event_time(following + 1)
        self.cancelled.update(self.cancelled.get() + 1)
        yield "record", self.timestamp

    def on_timer(self, key: int, timer: ms.Timer) -> Iterator[Any]:
        due = [v for v, moment in self.moments.items() if moment < timer.time]
        for value in due:
            self.moments.remove(value)
        yield "timer", timer.time, sorted(due)
        if not len(self.moments):
            self.cancelled.clear()


def event_timers() -> Case:
    """Timers of event time, several for a key, and the rows behind them by time."""
    flow = ms.Flow("event-timers")
    rows = flow.from_parallel(spread).event_time(moment, out_of_order=2 * DISORDER)
    keyed = rows.key_by(lambda number: number % KEYS)
    keyed.process(EveryTwenty()).for_each(print, name="said")
    expected: list[Any] = [(i % KEYS, ("record", moment(i))) for i in range(COUNT)]
    for key in range(KEYS):
        parts: dict[int, list[int]] = {}
        for number in range(key, COUNT, KEYS):
            following = moment(number) // EVERY * EVERY + EVERY
            parts.setdefault(following, []).append(number)
        expected += [(key, ("timer", time, due)) for time, due in parts.items()]
    return Case(flow, lambda found: same(_frozen(found["said"]), _frozen(expected)))


def _frozen(rows: list[Any]) -> list[Any]:
    return [repr(row) for row in rows]


class SomeAtATime(ms.StatefulFunction[int, int, Any]):
    """Counts the records of a key until a timer fires, and again until the next."""

    count = ms.ValueState[int](default=0)

    def on_record(self, key: int, value: int) -> None:
        if not self.count.exists():
            self.timers.after(value % 3 + 1)
        self.count.update(self.count.get() + 1)

    def on_timer(self, key: int, timer: ms.Timer) -> Iterator[Any]:
        yield self.count.get()
        self.count.clear()

    def on_end(self, key: int) -> Iterator[Any]:
        yield self.count.get()


def processing_timers() -> Case:
    """Parts of a count that the clock decides over; together they are the count."""
    flow = ms.Flow("processing-timers")
    keyed = flow.from_parallel(spread).key_by(lambda number: number % KEYS)
    parts = keyed.process(SomeAtATime())
    parts.for_each(print, name="parts")
    parts.unkey().group_by(
        lambda part: part[0], value=lambda part: part[1]
    ).sum().collect(name="sums")
    counts = Counter(number % KEYS for number in range(COUNT))

    def check(rows: Rows) -> None:
        same(rows["sums"], list(counts.items()))
        assert all(count > 0 for _, count in rows["parts"])
        found: Counter[int] = Counter()
        for key, count in rows["parts"]:
            found[key] += count
        assert found == counts

    return Case(flow, check)


class Remembering(ms.StatefulFunction[int, int, Any]):
    """Lets a number pass unless it has seen it lately."""

    seen = ms.MapState[int, int](ttl=3, refresh="read")
    last = ms.ValueState[int](ttl=2)

    def on_record(self, key: int, value: int) -> Iterator[Any]:
        self.last.update(value)
        if self.seen.get(value) is None:
            yield value
        self.seen.update(value, value)

    def on_end(self, key: int) -> Iterator[Any]:
        """Say what is left: each key that has something left says so once."""
        yield "left"


def expiring() -> Case:
    """State that expires while epochs are cut: every number passes at least once."""
    flow = ms.Flow("expiring")
    numbers = flow.from_parallel(spread).flat_map(lambda i: [i, i])
    kept = numbers.key_by(lambda number: number % KEYS).process(Remembering())
    kept.for_each(print, name="passed")

    def check(rows: Rows) -> None:
        passed = [value for _, value in rows["passed"] if value != "left"]
        times = Counter(passed)
        assert set(times) == set(range(COUNT))
        assert max(times.values()) <= 2
        left = [key for key, value in rows["passed"] if value == "left"]
        assert len(left) == len(set(left))

    return Case(flow, check)


class Stretches(ms.StatefulFunction[int, int, Any]):
    """Says which records came within a gap of each other, by a time-out put off."""

    numbers = ms.ListState[int]()
    due = ms.ValueState[int]()

    def on_record(self, key: int, value: int) -> None:
        assert self.timestamp is not None
        if self.due.exists():
            self.timers.cancel_event_time(self.due.get())
        self.due.update(self.timers.at_event_time(self.timestamp + GAP))
        self.numbers.append(value)

    def on_timer(self, key: int, timer: ms.Timer) -> Iterator[Any]:
        yield timer.time, tuple(self.numbers.get())
        self.numbers.clear()
        self.due.clear()


def ordered() -> Case:
    """Put records and timers into one order: a time-out is right only then."""
    flow = ms.Flow("ordered")
    rows = flow.from_parallel(spread).event_time(moment, out_of_order=2 * DISORDER)
    keyed = rows.key_by(lambda number: number % KEYS)
    keyed.process(Stretches(), in_time_order=True).for_each(print, name="stretches")
    expected: list[Any] = []
    for key in range(KEYS):
        stretch: list[int] = []
        for number in sorted(range(key, COUNT, KEYS), key=moment):
            if stretch and moment(stretch[-1]) + GAP < moment(number):
                expected.append((key, (moment(stretch[-1]) + GAP, tuple(stretch))))
                stretch = []
            stretch.append(number)
        expected.append((key, (moment(stretch[-1]) + GAP, tuple(stretch))))
    assert len(expected) > 2 * KEYS
    return Case(flow, lambda found: same(found["stretches"], expected))


TIMER_CASES = (event_timers, processing_timers, expiring, ordered)
