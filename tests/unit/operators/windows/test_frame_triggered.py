"""Triggers and long sessions on frames: what stays in memory, and what snapshots store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.making import node
from tests.support.windowing import MEMORY, SHARDS

import millstream as ms
from millstream import windows
from millstream.errors import SnapshotError
from millstream.operators.time.clock import ClockWindowOperator
from millstream.operators.windows import frame_pieces
from millstream.operators.windows import frame_session as frame_sessions
from millstream.operators.windows import frame_triggered as frame_triggers
from millstream.operators.windows.frame_session import FrameSessionOperator
from millstream.operators.windows.frame_triggered import FrameTriggeredOperator
from millstream.protocol.ids import Epoch
from millstream.state.frame_log import FrameLogState
from millstream.testing import ManualClock
from millstream.windows import Action, Trigger, TriggerContext

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.plan.windows import AnyWindow

SCHEMA = {"key": pl.Int64, "x": pl.Int64}


class Evens(Trigger):
    """Gives and forgets the rows of a key at every even value."""

    def on_row(self, value: Any, context: TriggerContext) -> Action:
        is_even = value["x"] % 2 == 0
        return Action.FIRE | Action.PURGE if is_even else Action.CONTINUE


class Always(Trigger):
    """Gives all rows again with every row."""

    def on_row(self, value: Any, context: TriggerContext) -> Action:
        return Action.FIRE

    def on_end(self, context: TriggerContext) -> Action:
        return Action.CONTINUE


def planned(window: AnyWindow) -> Any:
    flow = ms.Flow("frame")
    frame = flow.from_frame(pl.DataFrame(schema=SCHEMA))
    frame.group_by("key").window(window).agg(pl.len(), pl.col("x").sum())
    return flow.plan.nodes[-1].spec


def triggered(trigger: Trigger) -> Any:
    spec = planned(windows.global_window(trigger))
    return FrameTriggeredOperator((node(spec),), MEMORY, ManualClock(), engine="polars")


def rows(*pairs: tuple[int, int]) -> Any:
    return pl.DataFrame(pairs, schema=SCHEMA, orient="row")


def rows_of(frames: Iterable[Any]) -> list[Any]:
    return [row for frame in frames for row in frame.rows()]


def test_keys_without_rows_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many come, only those that have rows are remembered."""
    monkeypatch.setattr(frame_triggers, "SLOTS_MAX", 50)
    monkeypatch.setattr(frame_pieces, "_ROWS_MIN", 50)
    operator = triggered(Evens())
    operator.process(rows((-1, 1)))
    for batch in range(40):
        keys = range(batch * 30, batch * 30 + 30)
        made = operator.process(rows(*((key, 2) for key in keys)))
        assert made.height == 30

    assert operator._index is not None
    assert len(operator._index) < 100
    assert operator._pieces._rows < 200
    assert operator.process(rows((-1, 4))).rows() == [(-1, 2, 5)]


def test_a_row_that_gives_all_rows_again_costs_what_it_must(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results of many pieces are made in between, from one piece of what was before."""
    monkeypatch.setattr(frame_triggers, "PIECES_MAX", 100)
    made = triggered(Always()).process(rows(*((1, n) for n in range(200))))

    expected = [(1, n + 1, n * (n + 1) // 2) for n in range(200)]
    assert made.rows() == expected


def test_a_snapshot_has_the_keys_that_changed() -> None:
    """Also those that are gone, so that they do not come back."""
    operator = triggered(Evens())
    operator.process(rows(*((key, 1) for key in range(100))))
    state = operator.state
    assert isinstance(state, FrameLogState)
    first = state.capture(Epoch(1), Epoch(0))
    operator.process(rows((7, 2), (200, 3)))
    second = state.capture(Epoch(2), Epoch(1))

    assert first.told.rows is not None
    assert second.told.rows is not None
    assert (first.told.rows.height, second.told.rows.height) == (100, 2)
    segments = [*first.segments("agg", 0), *second.segments("agg", 0)]
    restored = triggered(Evens())
    assert restored.state is not None
    restored.state.restore(segments, (0, SHARDS))
    made = [row for frame in restored.finish() for row in frame.rows()]
    assert sorted(made) == [(key, 1, 1) for key in range(100) if key != 7] + [
        (200, 1, 3)
    ]


class Locked(Evens):
    """Remembers what cannot be stored."""

    def on_row(self, value: Any, context: TriggerContext) -> Action:
        context.state["function"] = lambda: value
        return Action.CONTINUE


def test_memories_that_cannot_be_stored_are_named() -> None:
    """With the key that they are for."""
    operator = triggered(Locked())
    operator.process(rows((5, 1)))
    assert operator.state is not None

    with pytest.raises(SnapshotError, match="remembers for key 5 cannot be stored"):
        operator.state.capture(Epoch(1), Epoch(0))


def test_a_session_that_goes_on_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came at many times becomes one long before it is over."""
    monkeypatch.setattr(frame_sessions, "_FRESH_ROWS", 20)
    clock = ManualClock()
    spec = planned(windows.session("1h", time="processing"))
    sessions = FrameSessionOperator((node(spec),), MEMORY)
    operator = ClockWindowOperator(sessions, clock, 50)
    for _ in range(100):
        clock.advance("1s")
        operator.process(rows((1, 1), (2, 1)))

    held = sessions._sessions.merged()
    assert held is not None
    assert held.height < 60
    made = rows_of(operator.finish())
    bounds = 1_000, 100_000 + 3_600_000
    assert sorted(made) == [(1, *bounds, 100, 100), (2, *bounds, 100, 100)]


def test_sessions_by_the_clock_are_not_looked_at_all_the_time() -> None:
    """Their results may be a moment late; what is in them is not affected."""
    clock = ManualClock()
    spec = planned(windows.session(10, time="processing"))
    sessions = FrameSessionOperator((node(spec),))
    operator = ClockWindowOperator(sessions, clock, 50)
    operator.process(rows((1, 1)))
    clock.advance("1ms")
    operator.process(rows((2, 1)))
    assert operator.tick_at_ms == 10
    assert rows_of(operator.tick(10)) == [(1, 0, 10, 1, 1)]
    assert operator.tick_at_ms == 60
    clock.advance("30ms")
    operator.process(rows((2, 5)))

    assert sorted(rows_of(operator.tick(60))) == [
        (2, 1, 11, 1, 1),
        (2, 31, 41, 1, 5),
    ]
