"""Mistakes of windows on frames: what is said again, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation import frame_window_flows as flows
from tests.simulation.mutations import mutant, wrapped

from millstream.operators.time.frame_in_order import FrameSortByTimeOperator
from millstream.operators.windows.frame_time import FrameTimeWindowOperator
from millstream.operators.windows.frame_triggered import FrameTriggeredOperator
from millstream.protocol.watermark import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.mutations import Patch

    from millstream.state.frame_log import LogDelta


@mutant(flows.window_frames, "Windows that were over before the cut are given again.")
def restored_windows_of_frames_know_no_time(patch: Patch) -> None:

    def restore_log(
        original: Callable[..., None], self: Any, logs: list[LogDelta]
    ) -> None:
        original(self, logs)
        self.fired = self.spec.panes.over(BEGINNING)

    wrapped(patch, FrameTimeWindowOperator, "restore_log", restore_log)


@mutant(
    flows.triggered_frames,
    "Keys without rows are not in the delta: they come back.",
    seed=9,
)
def keys_that_are_gone_are_not_told(patch: Patch) -> None:

    def told(original: Callable[..., LogDelta], self: Any, since: int) -> LogDelta:
        self._touched = {s: n for s, n in self._touched.items() if s in self._entries}
        return original(self, since)

    wrapped(patch, FrameTriggeredOperator, "delta", told)


@mutant(flows.counted_frames, "Rows that wait for their turn are not in the snapshot.")
def rows_that_wait_are_not_stored(patch: Patch) -> None:

    def advance(original: Callable[..., Any], self: Any, time: int) -> Any:
        if self._waiting._fresh is not None:
            self._waiting._fresh = []
        return original(self, time)

    wrapped(patch, FrameSortByTimeOperator, "advance", advance)
