"""The flows whose state is pinned, and how they are left in the middle.

A directory in ``v<format>`` was written by these flows, so they change no more: operators
keep their names and what they keep.  A new flow is for a new directory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

import millstream as ms
from millstream.connectors.base import Source, SourceReader, Split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.config import Config

KEY = bytes(range(32))
COUNT, HALF, KEYS = 40, 20, 5
PER_EPOCH = 4
ROUNDS = 50
LARGE = 10**6
EMPTY: tuple[int, ...] = ()
INPUT, OUTPUT = "memory://golden/input.txt", "memory://golden/out"
SCHEMA = {"key": pl.Int64, "at": pl.Int64}


@dataclass
class Gate:
    """How many rows may come: a few with every epoch, and half of all until it is open.

    `begun` is where the last reader began.
    """

    is_open: bool = False
    job: ms.Job | None = None
    begun: int | None = None

    @property
    def rows(self) -> int:
        epoch = 0 if self.job is None else self.job.epoch
        return COUNT if self.is_open else min(HALF, PER_EPOCH * (1 + epoch))


@dataclass
class _Reader(SourceReader[int]):
    gate: Gate
    offset: int

    def read(self, rows: int) -> list[int] | None:
        if self.offset >= COUNT:
            return None
        end = min(self.offset + rows, self.gate.rows)
        found = list(range(self.offset, end))
        self.offset = max(end, self.offset)
        return found


@dataclass
class Halted(Source[int]):
    """Numbers, the second half of which come when a gate is open."""

    gate: Gate
    is_bounded = False

    def splits(self, task_count: int) -> list[Split]:
        del task_count
        return [Split("numbers", {"at": date(2030, 1, 2), "what": ["numbers"]})]

    def open(self, split: Split, offset: int, config: Config) -> SourceReader[int]:
        del config
        assert split.payload == {"at": date(2030, 1, 2), "what": ["numbers"]}
        self.gate.begun = offset
        return _Reader(self.gate, offset)


@dataclass
class Tally:
    """What a user may keep: its path is in the directory."""

    count: int = 0
    last: tuple[int, ...] = ()
    parts: list[Any] = field(default_factory=list)


def moment(number: int) -> int:
    """Return the timestamp of a number: out of order, and some far too late."""
    return number * 3 + (number * 7) % 12 - (60 if number % 13 == 12 else 0)


def key(number: int) -> int:
    return number * number % KEYS


class Kinds(ms.StatefulFunction[Any, int, Any]):
    """Keeps values of many types, and says all of them at the end."""

    plain = ms.ValueState[dict[str, Any]]()
    numbers = ms.ListState[tuple[int, float]]()
    tally = ms.ValueState[Tally]()

    def on_record(self, key: Any, value: int) -> None:
        kept = self.plain.get() or {"seen": set(), "sum": Decimal(0), "ids": []}
        kept["seen"].add((value, frozenset({value, None})))
        kept["sum"] += Decimal(value) / 4
        kept["ids"].append(UUID(int=value << 70))
        kept["large"] = 3**50 + value
        kept["complex"] = complex(value, -0.0)
        kept["at"] = datetime(2030, 1, 2, tzinfo=UTC) + timedelta(days=value)
        kept["there"] = datetime(2030, 7, 2, tzinfo=ZoneInfo("Europe/Berlin"))
        kept["array"] = np.array([[value, 1], [2, 3]], "<i8")
        kept["number"] = np.float32(value)
        kept["window"] = ms.windows.Window(value, value + 1)
        self.plain.update(kept)
        self.numbers.append((value, value / 2))
        tally = self.tally.get() if self.tally.exists() else Tally()
        tally.count += 1
        tally.last = (*tally.last, value)[-2:]
        tally.parts = [kept["at"].date(), {value}]
        self.tally.update(tally)

    def on_end(self, key: Any) -> Iterator[Any]:
        kept = self.plain.get()
        assert kept is not None
        kept["seen"] = sorted(value for value, _ in kept["seen"])
        kept["array"] = kept["array"].tolist()
        yield list(kept.items()), list(self.numbers), self.tally.get()


class Marked(ms.StatefulFunction[int, int, Any]):
    """Counts records until a timer of event time fires."""

    count = ms.ValueState[int](default=0)

    def on_record(self, key: int, value: int) -> None:
        assert self.timestamp is not None
        self.count.update(self.count.get() + 1)
        self.timers.at_event_time(self.timestamp // 50 * 50 + 50)

    def on_timer(self, key: int, timer: ms.Timer) -> Iterator[Any]:
        yield timer, self.count.get()


class Threes(ms.windows.Trigger):
    """Every third row, and whatever is there when a hundred milliseconds are over."""

    def on_row(
        self, value: Any, context: ms.windows.TriggerContext
    ) -> ms.windows.Action:
        if context.count == 1:
            context.state["from"] = context.now
            context.call_at(context.now // 100 * 100 + 99)
        if context.count == 3:
            return ms.windows.Action.FIRE | ms.windows.Action.PURGE
        return ms.windows.Action.CONTINUE

    def on_time(
        self, time: int, context: ms.windows.TriggerContext
    ) -> ms.windows.Action:
        return ms.windows.Action.FIRE | ms.windows.Action.PURGE


def keyed(flow: ms.Flow, gate: Gate) -> None:
    """State by key: many types, NaN among the keys, timers."""
    numbers = flow.read(Halted(gate), name="numbers")
    keys = (float("nan"), ("a", float("nan")), date(2030, 1, 2), None, 1 << 70)
    by_kind = numbers.key_by(lambda i: keys[key(i)], name="kinds of keys")
    by_kind.process(Kinds(), name="kinds").unkey(name="said").collect(name="kinds said")
    timed = numbers.event_time(moment, out_of_order=80, name="times")
    marked = timed.key_by(key, name="keys").process(Marked(), name="marked")
    marked.unkey(name="marks").collect(name="marked said")


def summed(flow: ms.Flow, gate: Gate) -> None:
    """Keep aggregates, and state without keys."""
    numbers = flow.read(Halted(gate), name="numbers")
    grouped = numbers.group_by(key, name="groups")
    grouped.count(name="count").collect(name="counts")
    grouped.mean(name="mean").collect(name="means")
    grouped.unique(name="unique").collect(name="uniques")
    numbers.mean(name="mean of all")
    numbers.sort_by(lambda i: -i, name="sort").collect(name="sorted")
    numbers.zip(
        flow.from_iterable("abcdefghij" * 3, name="letters"), name="zip"
    ).collect(name="zipped")
    keyed = numbers.key_by(key, name="keys")
    pairs = keyed.map_with_state(
        EMPTY, lambda s, i: ((*s, i)[-3:], sum(s)), name="sums"
    )
    pairs.unkey(name="pairs").collect(name="running")


def windowed(flow: ms.Flow, gate: Gate) -> None:
    """Windows of rows, late ones too, and triggers."""
    numbers = flow.read(Halted(gate), name="numbers")
    timed = numbers.event_time(moment, out_of_order=6, name="times")
    by_key = timed.key_by(key, name="keys")
    sliding = by_key.window(ms.windows.sliding(90, 30, offset=3), allowed_lateness=10)
    lists = sliding.map_window(lambda w, rows: (w, rows), name="sliding").unkey(
        name="lists"
    )
    last = lists.group_by(lambda row: (row[0], row[1][0]), name="windows")
    last.last(name="last").map(lambda row: sorted(row[1][1][1]), name="sort").collect(
        name="slid"
    )
    visits = by_key.window(ms.windows.session(40))
    counted = visits.with_window().count(name="sessions")
    counted.unkey(name="visits").collect(name="visited")
    counted.late(name="late").collect(name="left out")
    threes = by_key.window(ms.windows.global_window(Threes()))
    threes.collect(name="threes").unkey(name="triples").collect(name="triggered")


def joined(flow: ms.Flow, gate: Gate) -> None:
    """Two sides of rows that wait for each other."""
    numbers = flow.read(Halted(gate), name="numbers")
    left = numbers.event_time(moment, out_of_order=6, name="times").key_by(
        key, name="keys"
    )
    right = left.map(lambda i: {"half": i / 2, "of": [i]}, name="halves")
    left.interval_join(right, -10, 10, name="interval").unkey(name="near").collect(
        name="intervals"
    )
    left.window_join(right, ms.windows.tumbling(40), name="windows").unkey(
        name="same"
    ).collect(name="in windows")
    left.asof_join(right, name="asof").unkey(name="last").collect(name="latest")


def framed(flow: ms.Flow, gate: Gate) -> None:
    """Frames: aggregates, windows, joins, a trigger, and an order."""
    numbers = flow.read(Halted(gate), name="numbers")
    dicts = numbers.map(lambda i: {"key": key(i), "at": moment(i)}, name="dicts")
    frame = dicts.to_frame(SCHEMA, name="frame")
    own = ms.frame_aggregate(
        "at",
        init=dict,
        update=lambda state, values: state | {int(v): (1,) for v in values},
        merge=lambda one, other: one | other,
        finish=len,
        dtype=pl.Int64,
    )
    grouped = frame.group_by("key", name="groups")
    grouped.agg(pl.col("at").sum(), distinct=own, name="sums").collect(name="summed")
    frame.sort("at", "key", name="sort").collect(name="sorted")
    frame.join(grouped.agg(n=pl.len(), name="sizes"), "key", name="join").collect(
        name="joined"
    )
    timed = frame.event_time("at", out_of_order=80, name="times").group_by("key")
    timed.window(ms.windows.sliding(30, 10)).agg(n=pl.len(), name="slides").collect(
        name="slid"
    )
    timed.window(ms.windows.session(40)).agg(n=pl.len(), name="sessions").collect(
        name="visited"
    )
    timed.window(ms.windows.global_window(Threes())).agg(
        pl.col("at").sum(), name="threes"
    ).collect(name="triggered")


def cycled(flow: ms.Flow, gate: Gate) -> None:
    """Go on from a round, with what the decider has decided."""
    del gate
    numbers = flow.from_iterable(range(COUNT), name="numbers")
    numbers.cycle(
        (0, 0.5),
        lambda rows, state: rows.map(lambda i: (i + state.value[0]) % 7, name="rest"),
        update=lambda state, rows: (state[0] + sum(rows), state[1] / 2),
        max_rounds=ROUNDS,
        name="cycle",
    ).collect(name="cycled")
    numbers.iterate(
        lambda rows: rows.shuffle(name="spread").map(lambda i: i + 1000, name="more"),
        max_rounds=ROUNDS,
        name="iterate",
    ).collect(name="iterated")


def looped(flow: ms.Flow, gate: Gate) -> None:
    """Go on with what was under way in a loop without rounds."""
    numbers = flow.read(Halted(gate), name="numbers")
    pairs = numbers.map(lambda i: (i, [i]), name="pairs")
    pairs.loop(
        lambda rows: (
            rows.filter(lambda p: p[0] < LARGE or not gate.is_open, name="on")
            .shuffle(name="spread")
            .map(lambda p: (min(p[0] * 2 + 1, LARGE), p[1]), name="double"),
            rows.filter(lambda p: p[0] >= LARGE and gate.is_open, name="out"),
        ),
        name="loop",
    ).collect(name="looped")


def failing(flow: ms.Flow, gate: Gate) -> None:
    """Dead letters, kept by key and collected."""
    numbers = flow.read(Halted(gate), name="numbers")
    numbers.map(lambda i: 60 // (i % 7), name="divide").collect(name="divided")
    letters = flow.dead_letters(max_dead_letters=100, name="letters")
    kept = letters.key_by(lambda letter: letter.record % 2, name="parity")
    none: list[ms.DeadLetter] = []
    lists = kept.map_with_state(none, lambda s, x: ([*s, x], list(s)), name="last")
    lists.map(lambda s: [(x.record, x.operator) for x in s], name="short").unkey(
        name="before"
    ).collect(name="letters before")


def written(flow: ms.Flow, gate: Gate) -> None:
    """Files in, files and a database out."""
    numbers = flow.read(Halted(gate), name="numbers").map(str, name="texts")
    lines = flow.read_text(INPUT, name="lines")
    everything = numbers.merge(lines, name="both")
    everything.write_text(OUTPUT, roll=9, name="files")
    everything.map(lambda text: (text, len(text)), name="rows").write_sqlite(
        "table.db", "texts", columns=("text", "size"), name="table"
    )


@dataclass(frozen=True)
class Pinned:
    """A flow, in which round it is left, or None for at its gate, and if it needs files."""

    build: Callable[[ms.Flow, Gate], None]
    leave_in_round: int | None = None
    has_files: bool = False

    def flow(self, gate: Gate) -> ms.Flow:
        flow = ms.Flow(f"golden {self.build.__name__}")
        self.build(flow, gate)
        return flow


PINNED = {
    each.build.__name__: each
    for each in (
        Pinned(keyed),
        Pinned(summed),
        Pinned(windowed),
        Pinned(joined),
        Pinned(framed),
        Pinned(cycled, leave_in_round=7),
        Pinned(looped),
        Pinned(failing),
        Pinned(written, has_files=True),
    )
}
