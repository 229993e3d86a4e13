"""Mistakes of windows: what a restored one forgets, what a delta lacks, who is late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation import window_flows as flows
from tests.simulation.mutations import mutant, wrapped

from millstream.operators.windows import session as windows_session
from millstream.operators.windows import time as windows_time
from millstream.operators.windows.base import KeyedWindowOperator, TimedWindowOperator

if TYPE_CHECKING:
    from tests.simulation.mutations import Patch


@mutant(flows.sliding_windows, "Nobody knows which windows of restored keys are next.")
def restored_windows_are_not_found(patch: Patch) -> None:
    patch.setattr(windows_time.TimeWindowOperator, "index", lambda _: None)


@mutant(flows.session_windows, "Nobody knows when restored sessions are over.", seed=9)
def restored_sessions_are_not_found(patch: Patch) -> None:
    patch.setattr(windows_session.SessionOperator, "index", lambda _: None)


@mutant(flows.triggered_windows, "Rows that are gone are still in the next snapshot.")
def windows_that_are_over_are_not_in_the_delta(patch: Patch) -> None:

    def entries_of(self: KeyedWindowOperator, keys: list[Any]) -> dict[Any, Any]:
        return self.table.peek(keys)

    patch.setattr(KeyedWindowOperator, "entries_of", entries_of)


@mutant(flows.late_rows, "Whether a row is late depends on who was slow.")
def late_rows_are_judged_by_the_watermark_here(patch: Patch) -> None:

    def take_one(original: Any, self: Any, *arguments: Any) -> None:
        entries, key, item, again = arguments
        original(self, entries, key, (int(item[0]), item[1]), again)

    wrapped(patch, windows_time.TimeWindowOperator, "_take_one", take_one)


@mutant(
    flows.updated_windows, "A window that is over is dropped before late rows come."
)
def lateness_is_forgotten_after_a_restart(patch: Patch) -> None:

    def index(original: Any, self: Any) -> None:
        original(self)
        if self.reached > 0:
            self._lateness = 0

    wrapped(patch, windows_time.TimeWindowOperator, "index", index)


@mutant(flows.sliding_windows, "Windows that were over before the cut are given again.")
def time_that_was_reached_is_not_restored(patch: Patch) -> None:
    patch.setattr(TimedWindowOperator, "_put_reached", lambda _, __: None)
