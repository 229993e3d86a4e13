"""Timers of stateful functions: when they fire, in which order, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.operators.rows import processing
from millstream.protocol.watermark import END_OF_TIME
from millstream.testing import FunctionHarness, ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Scripted(ms.StatefulFunction[Any, Any, Any]):
    """Runs whatever function the value is; says which timers fire."""

    value = ms.ValueState[Any]()

    def on_record(self, key: Any, value: Callable[[Scripted], Any]) -> list[Any]:
        made = value(self)
        return [] if made is None else [made]

    def on_timer(self, key: Any, timer: ms.Timer) -> Iterator[Any]:
        yield timer.kind, timer.time, self.timestamp
        then = self.value.get()
        if then is not None:
            then(self, timer)

    def on_end(self, key: Any) -> Iterator[Any]:
        yield "end", self.timestamp


def event(*times: int) -> Callable[[Scripted], None]:
    def act(function: Scripted) -> None:
        for time in times:
            function.timers.at_event_time(time)

    return act


def timed() -> FunctionHarness[Any, Any, Any]:
    return FunctionHarness(Scripted(), timed=True)


def untimed() -> FunctionHarness[Any, Any, Any]:
    return FunctionHarness(Scripted())


def test_timer_of_event_time_fires_when_the_watermark_comes_to_it() -> None:
    """Not before, once, and with its own time on what follows from it."""
    harness = timed()
    harness.record("a", event(10), timestamp=3)

    assert harness.watermark(9) == []
    assert harness.watermark(10) == [("a", ("event", 10, 10))]
    assert harness.watermark(50) == []
    assert harness.timestamps == [10]
    assert harness.keys() == []


def test_timers_fire_in_the_order_of_time_over_all_keys() -> None:
    """One watermark may be far ahead of the last one."""
    harness = timed()
    harness.record("a", event(30, 10), timestamp=1)
    harness.record("b", event(20, 40), timestamp=1)

    fired = [what[1] for _, what in harness.watermark(100)]

    assert fired == [10, 20, 30, 40]


def test_keys_with_timers_for_one_time_have_a_fixed_order() -> None:
    """Whichever set its timer first: a run after a crash says the same as one without."""
    keys = list(range(20))
    there, back = timed(), timed()
    for key in keys:
        there.record(key, event(5), timestamp=1)
    for key in reversed(keys):
        back.record(key, event(5), timestamp=1)

    assert there.watermark(5) == back.watermark(5)


def test_key_has_one_timer_of_a_kind_for_a_time() -> None:
    """However often it is set."""
    harness = timed()
    harness.record("a", event(10, 10), timestamp=1)
    harness.record("a", event(10), timestamp=2)

    assert harness.timers("a") == [ms.Timer(10, "event")]
    assert len(harness.watermark(10)) == 1


def test_cancelled_timer_does_not_fire() -> None:
    """And its key is forgotten when nothing else is left of it."""
    harness = timed()
    harness.record("a", event(10, 20), timestamp=1)
    harness.record("a", lambda f: f.timers.cancel_event_time(10), timestamp=1)
    harness.record("a", lambda f: f.timers.cancel_event_time(20), timestamp=1)
    harness.record("a", lambda f: f.timers.cancel_event_time(30), timestamp=1)

    assert harness.keys() == []
    assert harness.watermark(30) == []


def test_timer_in_the_past_fires_with_the_next_watermark() -> None:
    """A record that is late may still want something to be done."""
    harness = timed()
    harness.watermark(50)

    assert harness.record("a", event(10), timestamp=5) == []
    assert harness.watermark(50) == [("a", ("event", 10, 10))]


def test_timer_that_is_set_while_timers_fire_fires_in_its_turn() -> None:
    """Those that are due already, between the others; the rest waits."""
    harness = timed()

    def chain(function: Scripted, timer: ms.Timer) -> None:
        function.timers.at_event_time(timer.time + 15)

    harness.record("a", lambda f: f.value.update(chain), timestamp=1)
    harness.record("a", event(10, 30), timestamp=1)

    assert [what[1] for _, what in harness.watermark(50)] == [10, 25, 30, 40, 45]
    assert harness.timers("a") == [ms.Timer(55, "event"), ms.Timer(60, "event")]


def test_end_of_input_is_the_end_of_event_time() -> None:
    """All timers of event time fire, then every key that has state hears of the end."""
    harness = timed()
    harness.record("a", event(10), timestamp=1)
    harness.record("b", lambda f: f.value.update(lambda *_: None), timestamp=1)
    harness.record("b", event(5), timestamp=1)

    assert harness.end() == [
        ("b", ("event", 5, 5)),
        ("a", ("event", 10, 10)),
        ("b", ("end", None)),
    ]
    assert harness.timestamps == [5, 10, END_OF_TIME]


def test_timer_of_processing_time_does_not_fire_at_the_end() -> None:
    """Its time has not come; the key hears of the end instead."""
    harness = untimed()
    harness.record("a", lambda f: f.timers.after("1h") and None)

    assert harness.end() == [("a", ("end", None))]


def test_function_learns_that_the_input_has_ended() -> None:
    """So that a timer that sets itself anew can stop."""
    harness = timed()
    seen = []

    def watch(function: Scripted, _timer: ms.Timer) -> None:
        seen.append((function.is_at_end, function.watermark))

    harness.record("a", lambda f: f.value.update(watch), timestamp=1)
    harness.record("a", event(10, 20), timestamp=1)
    harness.watermark(12)
    harness.end()

    assert seen == [(False, 12), (True, END_OF_TIME)]


def test_endless_timers_after_the_end_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that never ends says nothing; this one says whose fault it is."""
    monkeypatch.setattr(processing, "_TIMERS_AFTER_END_MAX", 50)
    harness = timed()

    def again(function: Scripted, timer: ms.Timer) -> None:
        function.timers.at_event_time(timer.time + 1)

    harness.record("a", lambda f: f.value.update(again), timestamp=1)
    harness.record("a", event(10), timestamp=1)
    assert len(harness.watermark(200)) == 191

    with pytest.raises(ms.UsageError, match=r"51 timers of key .a. of `process` at"):
        harness.end()


def test_timer_of_processing_time_fires_by_the_clock() -> None:
    """Without any record; on a stream without timestamps too."""
    harness = untimed()
    harness.record("a", lambda f: f.timers.after("10s"))
    harness.record("b", lambda f: f.timers.at_processing_time(4_000))

    assert harness.output == [("a", 10_000), ("b", 4_000)]
    assert harness.advance("9s") == [("b", ("processing", 4_000, None))]
    assert harness.advance("1s") == [("a", ("processing", 10_000, None))]
    assert harness.clock.wall_ms() == 10_000


def test_processing_time_that_is_moved_on_costs_one_look() -> None:
    """A time-out that every record puts off does not pile up timers."""
    harness = untimed()

    def put_off(function: Scripted) -> None:
        function.timers.cancel_processing_time(function.timers.now + 60_000 - 1)
        function.timers.after("1m")

    for _ in range(1_000):
        harness.record("a", put_off)
        harness.advance("1ms")

    assert len(harness.timers("a")) == 1
    index = harness._operator._indexes["processing"]
    assert len(index) == 1
    assert index._noted == 1
    assert [what[1] for _, what in harness.advance("2m")] == [60_999]


def test_record_knows_its_timestamp_and_the_watermark() -> None:
    """Also a late one; without timestamps there is neither."""
    harness, plain = timed(), untimed()
    look = lambda f: (f.timestamp, f.watermark)  # noqa: E731 - short

    assert harness.record("a", look, timestamp=4) == [("a", (4, None))]
    harness.watermark(9)
    assert harness.record("a", look, timestamp=5) == [("a", (5, 9))]
    assert harness.timestamps == [4, 5]
    assert plain.record("a", look) == [("a", (None, None))]


def test_times_may_be_datetimes() -> None:
    """A naive one means UTC, as for timestamps."""
    harness = timed()
    harness.record(
        "a",
        lambda f: f.timers.at_event_time(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        timestamp=1,
    )

    assert harness.timers("a") == [ms.Timer(1_000, "event")]


def test_timers_are_stored_and_restored() -> None:
    """With the state, whenever that is; the watermark that was reached as well."""
    harness = timed()
    harness.record("a", event(10, 20), timestamp=1)
    harness.record("b", lambda f: f.timers.at_processing_time(50) and None, timestamp=1)
    harness.watermark(15)
    kept = harness.snapshot()
    harness.watermark(30)
    harness.restore(kept)

    look = harness.record("c", lambda f: f.watermark, timestamp=16)
    assert look == [("c", 15)]
    assert harness.watermark(30) == [("a", ("event", 20, 20))]
    assert harness.advance("1s") == [("b", ("processing", 50, 50))]


def test_timer_of_event_time_needs_timestamps() -> None:
    """The sentence names the verb and its line."""
    harness = untimed()

    with pytest.raises(ms.UsageError) as raised:
        harness.record("a", event(10))

    text = str(raised.value)
    assert text.startswith("`process` at test_timers.py:")
    assert "sets a timer of event time, but its records have no timestamps" in text


def test_timer_needs_somebody_who_hears_of_it() -> None:
    """A timer that nothing follows from is a mistake."""

    class Deaf(ms.StatefulFunction[Any, Any, Any]):
        def on_record(self, key: Any, value: Any) -> None:
            self.timers.after("1s")

    with pytest.raises(ms.UsageError, match="has no `on_timer`"):
        FunctionHarness(Deaf()).record("a", 1)


def test_timer_in_on_end_is_refused() -> None:
    """It would never fire."""

    class Late(Scripted):
        def on_end(self, key: Any) -> Iterator[Any]:
            yield self.timers.after("1s")

    harness: FunctionHarness[Any, Any, Any] = FunctionHarness(Late())
    harness.record("a", lambda f: f.value.update(1))

    with pytest.raises(ms.UsageError, match="sets a timer in `on_end`"):
        harness.end()


def test_new_round_forgets_timers_and_time() -> None:
    """In an iteration time begins anew with every round."""
    harness = timed()
    harness.record("a", event(10), timestamp=1)
    harness.watermark(5)
    operator = harness._operator
    list(operator.finish())
    operator.reset()

    assert list(operator.advance(20)) == []
    operator.reset()
    look: Any = lambda f: (f.watermark, f.is_at_end)  # noqa: E731 - short
    assert operator.process([("a", (1, look))]) == [("a", (1, (None, False)))]


def test_failed_record_leaves_no_timer() -> None:
    """What is undone for a dead letter is undone with its timers."""
    harness = timed()
    operator = harness._operator

    def fail(function: Scripted) -> None:
        function.timers.at_event_time(10)
        function.timers.cancel_event_time(20)
        raise ValueError

    operator.process([("a", (1, event(20)))])
    undo = operator.begin_undo([("a", (2, fail))])
    with pytest.raises(ValueError):  # noqa: PT011 - ours
        operator.process([("a", (2, fail))])
    undo()

    assert harness.watermark(50) == [("a", ("event", 20, 20))]


class Aging(ms.StatefulFunction[Any, Any, Any]):
    """A value, a list and a map that expire."""

    value = ms.ValueState[int](default=0, ttl="10s")
    read = ms.ValueState[int](default=0, ttl="10s", refresh="read")
    items = ms.ListState[int](ttl="10s")
    table = ms.MapState[str, int](ttl="10s")

    def on_record(self, key: Any, value: Callable[[Aging], Any]) -> list[Any]:
        return [value(self)]


def aging(clock: ManualClock | None = None) -> FunctionHarness[Any, Any, Any]:
    return FunctionHarness(Aging(), clock=clock)


def asked(harness: FunctionHarness[Any, Any, Any], what: Callable[[Any], Any]) -> Any:
    ((_, answer),) = harness.record("a", what)
    return answer


def test_value_is_there_until_its_time_is_over() -> None:
    """To the millisecond; then it is what it was before the first update."""
    harness = aging()
    asked(harness, lambda f: f.value.update(7))

    harness.advance(9_999)
    assert asked(harness, lambda f: (f.value.get(), f.value.exists())) == (7, True)
    harness.advance(1)
    assert asked(harness, lambda f: (f.value.get(), f.value.exists())) == (0, False)


def test_expired_value_is_not_seen_even_before_it_is_removed() -> None:
    """The clock may be ahead of the call that removes it."""
    clock = ManualClock()
    harness = aging(clock)
    asked(harness, lambda f: (f.value.update(7), f.items.append(1)))
    asked(harness, lambda f: f.table.update("x", 1))
    clock.advance("10s")

    assert harness.state("a") == {"value": 7, "items": [1], "table": {"x": 1}}
    assert asked(harness, lambda f: (f.value.get(), f.items.get())) == (0, [])
    assert asked(harness, lambda f: (f.table.get("x"), len(f.table))) == (None, 0)


def test_state_shrinks_without_access() -> None:
    """A key that nobody asks for any more costs nothing after a while."""
    harness = aging()
    for key in range(100):
        harness.record(key, lambda f: (f.value.update(1), f.table.update("x", 2)))

    assert len(harness.keys()) == 100
    harness.advance("10s")
    assert harness.keys() == []


def test_reading_refreshes_only_if_asked_for() -> None:
    """Writing always does."""
    harness = aging()
    asked(harness, lambda f: (f.value.update(1), f.read.update(2)))
    for _ in range(3):
        harness.advance("6s")
        asked(harness, lambda f: (f.value.get(), f.read.get()))

    assert harness.state("a") == {"read": 2}
    asked(harness, lambda f: f.value.update(1))
    harness.advance("6s")
    asked(harness, lambda f: f.value.update(2))
    harness.advance("6s")
    assert harness.state("a") == {"value": 2}


def test_entries_of_a_map_expire_one_by_one() -> None:
    """Each has a time of its own; the map goes with the last."""
    harness = aging()
    asked(harness, lambda f: f.table.update("x", 1))
    harness.advance("6s")
    asked(harness, lambda f: f.table.update("y", 2))

    harness.advance("6s")
    assert asked(harness, lambda f: (f.table.items(), "x" in f.table)) == (
        [("y", 2)],
        False,
    )
    harness.advance("6s")
    assert harness.keys() == []


def test_cleared_value_leaves_no_expiry_behind() -> None:
    """Nor does an entry that was removed."""
    harness = aging()
    asked(harness, lambda f: (f.value.update(1), f.table.update("x", 1)))
    asked(harness, lambda f: (f.value.clear(), f.table.remove("x")))

    assert harness.keys() == []


def test_expiry_is_stored_and_restored() -> None:
    """A value does not live longer because its task was lost."""
    harness = aging()
    asked(harness, lambda f: f.value.update(1))
    kept = harness.snapshot()
    harness.advance("4s")
    harness.restore(kept)

    harness.advance("5s")
    assert harness.keys() == ["a"]
    harness.advance("1s")
    assert harness.keys() == []


def test_key_of_which_all_has_expired_does_not_hear_of_the_end() -> None:
    """It has no state, whether or not somebody has removed it yet."""

    class Ending(Aging):
        def on_end(self, key: Any) -> list[str]:
            return ["end"]

    clock = ManualClock()
    harness: FunctionHarness[Any, Any, Any] = FunctionHarness(Ending(), clock=clock)
    harness.record("old", lambda f: f.value.update(1))
    clock.advance("6s")
    harness.record("new", lambda f: f.value.update(1))
    clock.advance("6s")

    assert harness.end() == [("new", "end")]


def test_bad_ttl_is_refused_where_it_is_written() -> None:
    """A class with a mistake is not even made."""
    with pytest.raises(ms.UsageError, match="at least 1 ms"):
        ms.ValueState(ttl=0)
    with pytest.raises(ms.UsageError, match="'write' or 'read', got refresh='never'"):
        ms.MapState(ttl="1s", refresh="never")  # type: ignore[arg-type]


def test_rocksdb_keeps_timers_too() -> None:
    """The backend makes no difference to what a function sees."""
    harness: FunctionHarness[Any, Any, Any]
    harness = FunctionHarness(Scripted(), timed=True, state_backend="rocksdb")
    harness.record("a", event(10, 20), timestamp=1)
    harness.watermark(10)
    kept = harness.snapshot()
    harness.restore(kept)

    assert harness.watermark(20) == [("a", ("event", 20, 20))]
    harness.close()
