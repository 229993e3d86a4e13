"""Timers of stateful functions against a list of all timers that is searched every time.

Method: Hypothesis draws a script of batches whose records set and cancel timers of both
kinds, watermarks, waits, and crashes.  At a crash a delta is stored, the operators are
thrown away, and others, one to three, are restored from all deltas and share the keys.
The timers that fire set and cancel others.  Every key must hear the same as from the
oracle, in the same order; and a single operator must tell all keys in the oracle's order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.making import node

import millstream as ms
from millstream.operators.rows.processing import ProcessOperator
from millstream.plan import nodes as specs
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import END_OF_TIME
from millstream.state.keyhash import key_hash, shard_of
from millstream.state.settings import StateSettings
from millstream.state.table import PlainTable
from millstream.testing import FunctionHarness, ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.operators.rows.timers import Kind
    from millstream.state.base import Segment

SHARDS = 8
MEMORY = StateSettings(SHARDS)
ROCKS = StateSettings(SHARDS, "rocksdb", cache_entries=2)
SETTINGS = [pytest.param(None, id="no snapshots"), pytest.param(MEMORY, id="memory")]
KINDS: tuple[Kind, Kind] = ("event", "processing")


@dataclass(frozen=True)
class Act:
    """What a record does to the timers of its key."""

    kind: Kind
    is_set: bool
    time: int


@dataclass(frozen=True)
class Batch:
    """Records with their keys."""

    rows: tuple[tuple[Any, tuple[Act, ...]], ...]


@dataclass(frozen=True)
class Watermark:
    """Event time goes on."""

    by: int


@dataclass(frozen=True)
class Wait:
    """The clock goes on."""

    ms: int


@dataclass(frozen=True)
class Crash:
    """All is stored, lost, and restored into so many tasks."""

    width: int


def reactions(timer: ms.Timer, *, is_at_end: bool) -> list[Act]:
    """Return what follows from a timer: a chain, some timers besides, a cancellation."""
    other: Kind = "event" if timer.kind == "processing" else "processing"
    acts = []
    if timer.time % 3 == 0 and not is_at_end:
        acts.append(Act(timer.kind, is_set=True, time=timer.time + 2))
    if timer.time % 5 == 1:
        acts.append(Act(timer.kind, is_set=False, time=timer.time + 1))
        acts.append(Act(other, is_set=True, time=timer.time + 4))
    return acts


class Acting(ms.StatefulFunction[Any, tuple[Act, ...], Any]):
    """Does to its timers what the records say."""

    heard = ms.ValueState[int](default=0)

    def on_record(self, key: Any, value: tuple[Act, ...]) -> None:
        self.heard.update(self.heard.get() + 1)
        for act in value:
            self.do(act)

    def on_timer(self, key: Any, timer: ms.Timer) -> Iterator[Any]:
        yield timer.kind, timer.time, self.heard.get()
        for act in reactions(timer, is_at_end=self.is_at_end):
            self.do(act)
        if timer.time % 7 == 0:
            self.heard.clear()

    def on_end(self, key: Any) -> Iterator[Any]:
        yield "end", self.heard.get()

    def do(self, act: Act) -> None:
        does = {
            ("event", True): self.timers.at_event_time,
            ("processing", True): self.timers.at_processing_time,
            ("event", False): self.timers.cancel_event_time,
            ("processing", False): self.timers.cancel_processing_time,
        }
        does[act.kind, act.is_set](act.time)


@dataclass
class Oracle:
    """Searches all timers of all keys for the next one."""

    timers: set[tuple[Any, Kind, int]] = field(default_factory=set)
    heard: dict[Any, int] = field(default_factory=dict)
    told: list[Any] = field(default_factory=list)
    watermark: int = 0
    now: int = 0

    def do(self, key: Any, act: Act) -> None:
        timer = (key, act.kind, act.time)
        if act.is_set:
            self.timers.add(timer)
        else:
            self.timers.discard(timer)

    def fire(self, kind: Kind, until: int, *, is_at_end: bool = False) -> None:
        while True:
            due = [t for t in self.timers if t[1] == kind and t[2] <= until]
            if not due:
                return
            key, _, time = min(due, key=lambda t: (t[2], key_hash(t[0])))
            self.timers.remove((key, kind, time))
            self.told.append((key, (time, (kind, time, self.heard.get(key, 0)))))
            for act in reactions(ms.Timer(time, kind), is_at_end=is_at_end):
                self.do(key, act)
            if time % 7 == 0:
                self.heard.pop(key, None)

    def take(self, step: Any) -> None:
        match step:
            case Batch(rows):
                for key, acts in rows:
                    self.heard[key] = self.heard.get(key, 0) + 1
                    for act in acts:
                        self.do(key, act)
            case Watermark(by):
                self.watermark += by
                self.fire("event", self.watermark)
            case Wait(wait):
                self.now += wait
                self.fire("processing", self.now)

    def end(self) -> None:
        self.fire("event", END_OF_TIME, is_at_end=True)
        left = {key for key, _, _ in self.timers} | set(self.heard)
        self.told += [
            (key, (END_OF_TIME, ("end", self.heard.get(key, 0)))) for key in left
        ]


class Tasks:
    """One to three operators that share the keys, and the store."""

    def __init__(self, settings: StateSettings | None) -> None:
        self.settings = settings
        self.clock = ManualClock()
        self.watermark = 0
        self.told: list[Any] = []
        self.segments: list[Segment] = []
        self.epoch = 0
        #: Whether other tasks took the last snapshot, so that nothing builds on it.
        self.is_rebasing = False
        self.operators = [self.made()]

    def made(self) -> ProcessOperator:
        of = replace(node(specs.Process(Acting())), takes_times=True, makes_times=True)
        table = PlainTable() if self.settings is None else self.settings.make_table()
        return ProcessOperator((of,), table, self.clock)

    def owner(self, key: Any) -> int:
        return shard_of(key, SHARDS) * len(self.operators) // SHARDS

    def take(self, step: Any) -> None:
        match step:
            case Batch(rows):
                for index, operator in enumerate(self.operators):
                    own = [(k, (0, acts)) for k, acts in rows if self.owner(k) == index]
                    if own:
                        self.told += operator.process(own)
            case Watermark(by):
                self.watermark += by
                for operator in self.operators:
                    for batch in operator.advance(self.watermark):
                        self.told += batch
            case Wait(wait):
                self.clock.advance(timedelta(milliseconds=wait))
                self.tick()
            case Crash(width):
                self.crash(width)

    def tick(self) -> None:
        now = self.clock.wall_ms()
        for operator in self.operators:
            if operator.tick_at_ms is not None and operator.tick_at_ms <= now:
                for batch in operator.tick(now):
                    self.told += batch
            assert operator.tick_at_ms is None or operator.tick_at_ms > now

    def crash(self, width: int) -> None:
        if self.settings is None:
            return
        since, self.epoch = self.epoch, self.epoch + 1
        if self.is_rebasing:
            since, self.segments = 0, []
        self.is_rebasing = width != len(self.operators)
        for index, operator in enumerate(self.operators):
            assert operator.state is not None
            capture = operator.state.capture(Epoch(self.epoch), Epoch(since))
            self.segments += capture.segments("process", index)
            operator.close()
        self.operators = [self.made() for _ in range(width)]
        for index, operator in enumerate(self.operators):
            owned = [s for s in range(SHARDS) if s * width // SHARDS == index]
            assert operator.state is not None
            operator.state.restore(self.segments, (owned[0], owned[-1] + 1))

    def end(self) -> None:
        for operator in self.operators:
            for batch in operator.finish():
                self.told += batch
            operator.close()


ACTS = st.builds(
    Act,
    kind=st.sampled_from(KINDS),
    is_set=st.sampled_from([True, True, False]),
    time=st.integers(-5, 60),
)
KEYS = st.sampled_from([0, 1, 2, 3, "a", "b", None, ("c", 1)])
ROWS = st.lists(st.tuples(KEYS, st.lists(ACTS, max_size=4).map(tuple)), max_size=6)
STEPS = st.one_of(
    ROWS.map(lambda rows: Batch(tuple(rows))),
    st.builds(Watermark, st.integers(1, 25)),
    st.builds(Wait, st.integers(1, 25)),
    st.builds(Crash, st.integers(1, 3)),
)
SCRIPTS = st.lists(STEPS, max_size=14)


def both(script: list[Any], settings: StateSettings | None) -> tuple[list[Any], Any]:
    tasks, oracle = Tasks(settings), Oracle()
    for step in script:
        tasks.take(step)
        oracle.take(step)
    tasks.end()
    oracle.end()
    return tasks.told, oracle.told


def by_key(told: list[Any]) -> dict[Any, list[Any]]:
    return {key: [what for k, what in told if k == key] for key, _ in told}


@examples(0.1)
@given(script=SCRIPTS)
def test_timers_in_rocksdb_fire_as_the_oracle_says(script: list[Any]) -> None:
    """Where most of the state is not in memory, they are found all the same."""
    told, expected = both(script, ROCKS)

    assert by_key(told) == by_key(expected)


@pytest.mark.parametrize("settings", SETTINGS)
@given(script=SCRIPTS)
def test_every_key_hears_of_its_timers_as_the_oracle_says(
    settings: StateSettings | None, script: list[Any]
) -> None:
    """In the order of time, each once, whatever was restored and shared anew."""
    told, expected = both(script, settings)

    assert by_key(told) == by_key(expected)


@given(script=st.lists(STEPS.filter(lambda s: not isinstance(s, Crash)), max_size=14))
def test_timers_of_all_keys_fire_in_the_order_of_time(script: list[Any]) -> None:
    """And at the same time by the hash of the key, so that every run is the same."""
    told, expected = both(script, None)

    def timers(rows: list[Any]) -> list[Any]:
        return [(key, what[:2]) for key, (_, what) in rows if what[0] in KINDS]

    assert timers(told) == timers(expected)


@dataclass(frozen=True)
class Use:
    """Something done to the state of a key: what, to which handle, with which entry."""

    name: str
    verb: str
    entry: int


class Aging(ms.StatefulFunction[int, Use, Any]):
    """Does to handles with a time to live what the records say."""

    value = ms.ValueState[int](default=-1, ttl=7)
    read_value = ms.ValueState[int](default=-1, ttl=7, refresh="read")
    items = ms.ListState[int](ttl=11)
    table = ms.MapState[int, int](ttl=5)
    read_table = ms.MapState[int, int](ttl=5, refresh="read")
    kept = ms.MapState[int, int]()

    def on_record(self, key: int, value: Use) -> list[Any]:
        handle: Any = getattr(self, value.name)
        if isinstance(handle, ms.MapState):
            return [self.use_map(handle, value)]
        match value.verb:
            case "write":
                write = handle.append if value.name == "items" else handle.update
                return [write(value.entry)]
            case "read":
                return [handle.get()]
            case "look":
                return [handle.exists()]
            case _:
                return [handle.clear()]

    def use_map(self, handle: ms.MapState[int, int], use: Use) -> Any:
        match use.verb:
            case "write":
                return handle.update(use.entry, use.entry)
            case "read":
                return handle.get(use.entry)
            case "look":
                return len(handle), use.entry in handle, handle.exists()
            case _:
                return handle.remove(use.entry)


LIVES = {"value": 7, "read_value": 7, "items": 11, "table": 5, "read_table": 5}


@dataclass
class Ages:
    """The same with the time of the last use beside every value."""

    now: int = 0
    #: By key, name and entry: value and expiry.
    entries: dict[tuple[int, str, int], tuple[Any, int]] = field(default_factory=dict)

    def live(self) -> dict[tuple[int, str, int], Any]:
        return {at: v for at, (v, expiry) in self.entries.items() if expiry > self.now}

    def use(self, key: int, use: Use) -> Any:
        is_map = "table" in use.name or use.name == "kept"
        at = (key, use.name, use.entry if is_map else 0)
        live = self.live()
        expiry = self.now + LIVES.get(use.name, 10**9)
        match use.verb:
            case "write":
                before = live.get(at, [])
                new = [*before, use.entry] if use.name == "items" else use.entry
                self.entries[at] = (new, expiry)
                return None
            case "read":
                if at in live and use.name.startswith("read"):
                    self.entries[at] = (live[at], expiry)
                missing: Any = [] if use.name == "items" else None if is_map else -1
                return live.get(at, missing)
            case "look" if is_map:
                count = len([a for a in live if a[:2] == at[:2]])
                return count, at in live, count > 0
            case "look":
                return at in live
            case _:
                self.entries.pop(at, None)
                return None


USES = st.builds(
    Use,
    name=st.sampled_from([*LIVES, "kept"]),
    verb=st.sampled_from(["write", "write", "read", "look", "remove"]),
    entry=st.integers(0, 2),
)
AGING = st.lists(
    st.one_of(st.tuples(st.integers(0, 2), USES), st.builds(Wait, st.integers(1, 9))),
    max_size=25,
)


@given(script=AGING, crash_at=st.integers(0, 25))
def test_expired_state_is_never_seen_and_goes_away(
    script: list[Any], crash_at: int
) -> None:
    """Also after a restore; in the end only what lives for ever is left, untouched."""
    check_aging(script, crash_at, MEMORY)


@examples(0.1)
@given(script=AGING, crash_at=st.integers(0, 25))
def test_expired_state_goes_away_from_rocksdb(script: list[Any], crash_at: int) -> None:
    """Nobody need read it for that."""
    check_aging(script, crash_at, ROCKS)


def check_aging(script: list[Any], crash_at: int, settings: StateSettings) -> None:
    clock, ages = ManualClock(), Ages()

    def made() -> ProcessOperator:
        of = (node(specs.Process(Aging())),)
        return ProcessOperator(of, settings.make_table(), clock)

    def wait(operator: ProcessOperator, ms_: int) -> None:
        clock.advance(timedelta(milliseconds=ms_))
        ages.now = clock.wall_ms()
        due = operator.tick_at_ms
        assert due is not None or not set(ages.entries) - set(ages.live())
        if due is not None and due <= ages.now:
            assert [row for rows in operator.tick(ages.now) for row in rows] == []
        ages.entries = {at: e for at, e in ages.entries.items() if e[1] > ages.now}
        assert operator.table is not None
        assert {k for k, _ in operator.table.items()} == {at[0] for at in ages.entries}

    operator = made()
    for number, step in enumerate(script):
        if number == crash_at:
            assert operator.table is not None
            capture = operator.table.capture(Epoch(1), Epoch(0))
            segments = list(capture.segments("process", 0))
            operator.close()
            operator = made()
            assert operator.table is not None
            operator.table.restore(segments, (0, SHARDS))
        if isinstance(step, Wait):
            wait(operator, step.ms)
        else:
            key, use = step
            assert operator.process([(key, use)]) == [(key, ages.use(key, use))]
    wait(operator, 20)
    assert operator.tick_at_ms is None
    assert {at[1] for at in ages.entries} <= {"kept"}
    operator.close()


@dataclass(frozen=True)
class Record:
    """A record with its timestamp, and when it sets a timer, counted from there."""

    time: int
    number: int
    timer: int | None


class InOrder(ms.StatefulFunction[Any, Record, Any]):
    """Says what it gets, and in which order."""

    last = ms.ValueState[int](default=-1)

    def on_record(self, key: Any, value: Record) -> Iterator[Any]:
        yield "record", self.timestamp, value.number, self.last.get()
        self.last.update(value.number)
        if value.timer is not None:
            self.timers.at_event_time(value.time + value.timer)

    def on_timer(self, key: Any, timer: ms.Timer) -> Iterator[Any]:
        yield "timer", timer.time, self.last.get()
        if timer.time % 4 == 0:
            self.last.clear()
            self.timers.at_event_time(timer.time + 3)


def told_in_order(records: list[Record]) -> list[Any]:
    """Return what `InOrder` says to all records of a key."""
    told: list[Any] = []
    waiting = sorted(records, key=lambda record: record.time)
    timers: set[int] = set()
    last = -1
    while waiting or timers:
        if waiting and waiting[0].time <= min(timers, default=waiting[0].time):
            record = waiting.pop(0)
            told.append(("record", record.time, record.number, last))
            last = record.number
            if record.timer is not None:
                timers.add(record.time + record.timer)
        else:
            time = min(timers)
            timers.remove(time)
            told.append(("timer", time, last))
            if time % 4 == 0:
                last = -1
                timers.add(time + 3)
    return told


@given(
    script=st.lists(
        st.one_of(
            st.tuples(
                st.integers(0, 2),
                st.integers(-5, 40),
                st.one_of(st.none(), st.integers(0, 20)),
            ),
            st.builds(Watermark, st.integers(1, 15)),
            st.just(Crash(1)),
        ),
        max_size=25,
    )
)
def test_records_and_timers_come_in_the_order_of_time(script: list[Any]) -> None:
    """However watermarks cut them; late ones are left out, and told apart."""
    harness: FunctionHarness[Any, Record, Any]
    harness = FunctionHarness(InOrder(), in_time_order=True)
    in_time: dict[int, list[Record]] = {}
    late, watermark = 0, -10
    harness.watermark(watermark)
    for number, step in enumerate(script):
        match step:
            case Watermark(by):
                watermark += by
                harness.watermark(watermark)
            case Crash():
                harness.restore(harness.snapshot())
            case (key, time, timer):
                record = Record(time, number, timer)
                harness.record(key, record, timestamp=time)
                if time > watermark:
                    in_time.setdefault(key, []).append(record)
                else:
                    late += 1
    harness.end()

    expected = {key: told_in_order(records) for key, records in in_time.items()}
    assert by_key(harness.output) == expected
    assert harness.timestamps == [what[1] for _, what in harness.output]
    assert len(harness.late) == late
