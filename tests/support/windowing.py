"""Windows by hand: operators with scripted rows and watermarks, and naive answers.

The naive answers look at every window and every row; they know neither panes nor when
anything comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.making import HERE

from millstream.config import Config
from millstream.operators.build import TaskContext, build_chain
from millstream.plan.logical import Node
from millstream.plan.time import LateTimestamp
from millstream.plan.windows import TimeWindows, Window
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import BEGINNING
from millstream.state.settings import StateSettings
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.plan.windows import Windowed

__all__ = [
    "Arrival",
    "arrivals",
    "naive_sessions",
    "naive_windows",
    "timed_rows",
    "window_operator_of",
    "with_restarts",
]

SHARDS = 16
MEMORY = StateSettings(SHARDS)


def window_operator_of(
    spec: Windowed,
    settings: StateSettings | None = None,
    clock: ManualClock | None = None,
    *,
    is_timed: bool = True,
) -> Any:
    """Return the operator that a task would run for a window of keyed rows."""
    node = Node(
        0,
        "window",
        "window",
        spec,
        (),
        HERE,
        takes_pairs=True,
        takes_times=is_timed,
        makes_times=is_timed,
    )
    context = TaskContext(
        "job",
        0,
        Config(),
        lambda _sink, _rows: None,
        settings,
        clock=clock or ManualClock(),
    )
    (operator,) = build_chain([node], context)
    return operator


def restored(operator: Any, spec: Windowed) -> Any:
    """Return an operator that goes on where another one was cut."""
    assert operator.state is not None
    capture = operator.state.capture(Epoch(1), Epoch(0))
    segments = list(capture.segments("window", 0))
    other = window_operator_of(spec, MEMORY)
    assert other.state is not None
    other.state.restore(segments, (0, SHARDS))
    return other


@dataclass(frozen=True, slots=True)
class Arrival:
    """A row, and what its origin had promised when it was read."""

    key: Any
    time: int
    value: Any
    promised: int

    @property
    def row(self) -> tuple[Any, tuple[int, Any]]:
        """The row as an operator gets it."""
        is_behind = self.time <= self.promised
        time = LateTimestamp(self.time, self.promised) if is_behind else self.time
        return self.key, (time, self.value)


def arrivals(
    rows: Iterable[tuple[int, Any, int]], out_of_order: int
) -> list[tuple[Arrival, int]]:
    """Return rows of two origins as they arrive, each with the watermark before it.

    Rows are origin, key and timestamp; the value is a number that no other row has.
    """
    promised = {0: BEGINNING, 1: BEGINNING}
    made = []
    for number, (origin, key, time) in enumerate(rows):
        watermark = min(promised.values())
        made.append((Arrival(key, time, (time, number), promised[origin]), watermark))
        promised[origin] = max(promised[origin], time - out_of_order - 1)
    return made


def with_restarts(
    spec: Windowed,
    work: list[tuple[Arrival, int]],
    cuts: set[int],
    told: set[int],
    batch: int = 1,
) -> tuple[list[Any], list[Any]]:
    """Return the results and the late rows of arrivals, in order.

    The operator is captured, thrown away and restored before the arrivals in `cuts`, and
    is told the watermark before those in `told`.
    """
    operator = window_operator_of(spec, MEMORY)
    made: list[Any] = []
    late: list[Any] = []
    waiting: list[Any] = []

    def send() -> None:
        if waiting:
            made.extend(operator.process(list(waiting)))
            waiting.clear()
        late.extend(operator.late)
        operator.late = []

    for number, (arrival, watermark) in enumerate(work):
        if number in told and watermark > BEGINNING:
            send()
            made += [row for rows in operator.advance(watermark) for row in rows]
        if number in cuts:
            send()
            operator = restored(operator, spec)
        waiting.append(arrival.row)
        if len(waiting) >= batch:
            send()
    send()
    made += [row for rows in operator.finish() for row in rows]
    operator.close()
    return made, late


def timed_rows(results: list[Any]) -> list[tuple[Any, int, Any]]:
    """Return key, timestamp and value of keyed rows with timestamps."""
    return [(key, time, value) for key, (time, value) in results]


def naive_windows(
    window: TimeWindows, lateness: int, work: Iterable[Arrival]
) -> tuple[dict[tuple[Any, Window], list[Arrival]], list[Arrival]]:
    """Return the rows of every key and window, and those that are too late for all."""
    found: dict[tuple[Any, Window], list[Arrival]] = {}
    late = []
    for arrival in work:
        starts = [
            start
            for start in range(arrival.time - window.size_ms + 1, arrival.time + 1)
            if (start - window.offset_ms) % window.slide_ms == 0
        ]
        taken = [
            s for s in starts if s + window.size_ms - 1 + lateness > arrival.promised
        ]
        for start in taken:
            bounds = Window(start, start + window.size_ms)
            found.setdefault((arrival.key, bounds), []).append(arrival)
        if starts and not taken:
            late.append(arrival)
    return found, late


def naive_sessions(
    gap: int, lateness: int, work: Iterable[Arrival]
) -> tuple[list[tuple[Any, Window, list[Arrival]]], list[Arrival]]:
    """Return the sessions of every key, and the rows that are too late."""
    late = []
    pieces: dict[Any, list[tuple[int, int, Arrival]]] = {}
    for arrival in work:
        start = max(arrival.time, arrival.promised - lateness + 1)
        if start >= arrival.time + gap:
            late.append(arrival)
        else:
            piece = (start, arrival.time + gap, arrival)
            pieces.setdefault(arrival.key, []).append(piece)
    sessions: list[tuple[Any, Window, list[Arrival]]] = []
    for key, own in pieces.items():
        bounds: Window | None = None
        members: list[Arrival] = []
        for start, end, arrival in sorted(own, key=lambda piece: piece[:2]):
            if bounds is None or start >= bounds.end:
                if bounds is not None:
                    sessions.append((key, bounds, members))
                bounds, members = Window(start, end), []
            bounds = Window(bounds.start, max(bounds.end, end))
            members.append(arrival)
        assert bounds is not None
        sessions.append((key, bounds, members))
    return sessions, late


def last_of(
    rows: Iterable[tuple[Any, int, Any]], place: Callable[[Any], Any]
) -> dict[Any, Any]:
    """Return the last result of each place."""
    return {place(row): row for row in rows}
