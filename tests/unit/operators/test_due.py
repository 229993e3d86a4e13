"""Which keys are due when, against a dict."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.operators.due import _STALE_MIN, DueKeys

TIMES = st.integers(-5, 20)


class DueMachine(RuleBasedStateMachine):
    """Does the same to a dict of the earliest times."""

    def __init__(self) -> None:
        super().__init__()
        self.due = DueKeys()
        self.times: dict[str, int] = {}

    @rule(key=st.sampled_from("abcd"), time=TIMES)
    def add(self, key: str, time: int) -> None:
        """Let the earlier time win."""
        self.due.add(key, time)
        self.times[key] = min(time, self.times.get(key, time))

    @rule()
    def take(self) -> None:
        """Of several keys with the earliest time, all."""
        first = min(self.times.values(), default=None)
        due = {key for key, time in self.times.items() if time == first}
        taken = self.due.take()
        assert sorted(map(str, taken)) == sorted(due)
        self.times = {k: time for k, time in self.times.items() if k not in due}

    @rule(last=TIMES, step=st.integers(1, 4), again=st.sets(st.sampled_from("abcd")))
    def take_until(self, last: int, step: int, again: set[str]) -> None:
        """In the order of time, also what is added meanwhile."""
        reached = -100
        for time, keys in self.due.taken(last):
            assert time == min(self.times.values())
            assert sorted(map(str, keys)) == sorted(
                k for k in self.times if self.times[k] == time
            )
            assert reached < time <= last
            reached = time
            for key in map(str, keys):
                del self.times[key]
                if key in again:
                    self.add(key, time + step)
        assert all(time > last for time in self.times.values())

    @rule()
    def clear(self) -> None:
        """Nothing is due any more."""
        self.due.clear()
        self.times = {}

    @invariant()
    def agrees(self) -> None:
        """Both know the same, and stale times do not pile up."""
        assert self.due.first == min(self.times.values(), default=None)
        assert self.due.time_of == self.times
        assert len(self.due) == len(self.times)
        assert self.due._noted == sum(map(len, self.due._keys_at.values()))
        assert set(self.due._times) == set(self.due._keys_at)


DueMachine.TestCase.settings = settings(deadline=None)
TestDueKeys = DueMachine.TestCase


def test_index_does_not_grow_with_times_that_come_and_go() -> None:
    """Short times beside a long one leave nothing behind for every turn."""
    due = DueKeys()
    for now in range(10_000):
        due.add("a", 100_000)
        due.add("a", now)
        assert due.take() == ["a"]
        assert due._noted <= 2 + _STALE_MIN


def test_index_does_not_grow_with_times_that_are_brought_forward() -> None:
    """A key that is due earlier with every row is still one key."""
    due = DueKeys()
    for time in range(10_000, 0, -1):
        due.add("a", time)
        assert due._noted <= 3 + _STALE_MIN

    assert list(due.taken(20_000)) == [(1, ["a"])]
