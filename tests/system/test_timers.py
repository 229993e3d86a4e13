"""Timers and expiring state in whole flows: any width, any backend, from any snapshot."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.simulation.timer_flows import event_timers
from tests.support.examples import mostly_slow
from tests.support.resizing import run_at_two_widths

import millstream as ms
from millstream.testing import Pause, ScriptedSource, manual_time, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT, KEYS, LATER = 60, 7, 1_000_000


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
def test_timers_of_event_time_fire_alike_at_any_width(workers: int) -> None:
    """Time comes from the records, so it does not matter who is quick."""
    case = event_timers()

    simulate(case.flow, seeds=3, workers=workers, faults="benign", check=case.check)


class Counting(ms.StatefulFunction[int, int, Any]):
    """Counts the records of a key, and says so when its time has come."""

    count = ms.ValueState[int](default=0)

    def on_record(self, key: int, value: int) -> None:
        self.count.update(self.count.get() + 1)
        self.timers.at_event_time(LATER + key)
        self.timers.at_event_time(LATER + 2 * key)

    def on_timer(self, key: int, timer: ms.Timer) -> Iterator[Any]:
        yield timer.time, self.count.get()


def slow_numbers() -> Iterator[int]:
    for number in range(COUNT):
        threading.Event().wait(0.01)
        yield number


@pytest.mark.parametrize("backend", mostly_slow("memory", "rocksdb"))
def test_timers_go_on_from_a_savepoint_at_another_width(
    backend: Literal["memory", "rocksdb"], tmp_path: Path
) -> None:
    """They are part of the state of their keys, and move with them."""
    flow = ms.Flow("counting")
    timed = flow.from_iterable(slow_numbers).event_time(lambda number: number)
    keyed = timed.key_by(lambda number: number % KEYS)
    counts = keyed.process(Counting()).collect()
    run_at_two_widths(flow, (2, 3), tmp_path, state_backend=backend)

    of = [len(range(key, COUNT, KEYS)) for key in range(KEYS)]
    expected = {(key, (LATER + key, of[key])) for key in range(KEYS)}
    expected |= {(key, (LATER + 2 * key, of[key])) for key in range(KEYS)}
    assert sorted(counts.result()) == sorted(expected)


class Echo(ms.StatefulFunction[str, int, Any]):
    """Repeats every record five milliseconds later."""

    def on_record(self, key: str, value: int) -> list[Any]:
        assert self.timestamp is not None
        self.timers.at_event_time(self.timestamp + 5)
        return [value]

    def on_timer(self, key: str, timer: ms.Timer) -> list[Any]:
        return [f"{timer.time - 5} again"]


def test_rows_have_the_time_of_their_record_or_timer() -> None:
    """What stands behind the function sees them in that order."""
    flow = ms.Flow("echo")
    timed = flow.from_iterable([0, 3, 1, 9]).event_time(lambda row: row, out_of_order=2)
    rows = timed.key_by(lambda _: "all").process(Echo()).drop_key().in_time_order()
    seen = rows.collect()
    flow.run(on="local", workers=2)

    assert seen.result() == [0, 1, 3, "0 again", "1 again", "3 again", 9, "9 again"]


def test_timer_of_event_time_without_timestamps_names_the_line() -> None:
    """The mistake is made where the flow is built, and found when it runs."""
    flow = ms.Flow("untimed")
    keyed = flow.from_iterable([1]).key_by(lambda number: number)
    keyed.process(Counting()).collect()

    with pytest.raises(ms.OperatorError) as raised:
        flow.run(on="local")

    cause = str(raised.value.__cause__)
    assert cause.startswith("`process` at test_timers.py:")
    assert "call `event_time` before it" in cause


class Lately(ms.StatefulFunction[str, int, Any]):
    """Lets the first record of a key pass, and again after an hour without any."""

    seen = ms.ValueState[bool](default=False, ttl="1h")

    def on_record(self, key: str, value: int) -> Iterator[int]:
        if not self.seen.get():
            yield value
        self.seen.update(value=True)


def test_hours_of_processing_time_pass_at_once() -> None:
    """A clock set by hand makes a test of what takes days one of milliseconds."""
    flow = ms.Flow("lately")
    half_an_hour, two_hours = (Pause(), Pause()), (Pause(),) * 5
    script = [1, *half_an_hour, 2, *half_an_hour, 3, *two_hours, 4]
    rows = flow.read(ScriptedSource(script)).key_by(lambda _: "a").process(Lately())
    passed = rows.drop_key().collect()
    with manual_time() as clock:
        flow.run(workers=2, source_idle_ms=30 * 60_000.0)

    assert passed.result() == [1, 4]
    assert 3 <= clock.wall_ms() / 3_600_000 < 4


def test_snapshots_are_taken_by_a_clock_set_by_hand(tmp_path: Path) -> None:
    """Files are written in the same thread then."""
    flow = ms.Flow("kept")
    script = [step for number in range(20) for step in (number, Pause(), Pause())]
    rows = flow.read(ScriptedSource(script)).key_by(lambda n: n % 3).process(Lately())
    passed = rows.drop_key().collect()
    with manual_time():
        job = flow.run(workers=2, source_idle_ms=1_000.0, state=tmp_path)

    assert sorted(passed.result()) == [0, 1, 2]
    assert job.epoch >= 2


def test_clock_set_by_hand_is_for_local_runs_only() -> None:
    """Other processes would not know of it."""
    flow = ms.Flow("elsewhere")
    flow.from_iterable([1]).collect()

    with manual_time(), pytest.raises(ms.UsageError, match="not on 'processes'"):
        flow.run(on="processes")


def test_late_records_of_a_function_in_time_order_can_be_read() -> None:
    """They are no part of what it says, and not lost either."""
    flow = ms.Flow("in-order")
    timed = flow.from_iterable([5, 3, 20, 4]).event_time(lambda i: i, out_of_order=2)
    echoes = timed.key_by(lambda _: "all").process(Echo(), in_time_order=True)
    said, late = echoes.drop_key().collect(), echoes.late().collect()
    flow.run(on="local", workers=2)

    assert said.result() == [3, 5, "3 again", "5 again", 20, "20 again"]
    assert [(row.key, row.value, row.timestamp) for row in late.result()] == [
        ("all", 4, 4)
    ]
    assert "process (in the order of time)" in flow.explain()
