"""Mistakes of joins of frames: what comes back, what a delta lacks, what stays too short."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation import frame_join_flows as flows
from tests.simulation.mutations import mutant, wrapped

from millstream.operators.frames.join_buffer import JoinBuffer
from millstream.operators.joins.frame_base import FrameStreamJoinOperator
from millstream.operators.joins.frame_interval import FrameIntervalJoinOperator
from millstream.protocol.watermark import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from tests.simulation.mutations import Patch

    from millstream.state.frame_log import LogDelta


@mutant(flows.interval_joined_frames, "A restored join says again what it has said.")
def restored_join_of_frames_knows_no_time(patch: Patch) -> None:

    def restored(original: Any, self: Any) -> None:
        original(self)
        self.facts.update(dict.fromkeys(self.facts, BEGINNING))

    wrapped(patch, FrameStreamJoinOperator, "_restored", restored)


@mutant(flows.nearest_joined_frames, "Rows that were forgotten come back.")
def forgotten_rows_are_in_the_log(patch: Patch) -> None:

    def told(
        original: Callable[..., LogDelta], self: JoinBuffer, since: int
    ) -> LogDelta:
        return replace(original(self, since), least=None)

    wrapped(patch, JoinBuffer, "delta", told)


@mutant(flows.last_joined_frames, "What came since the last cut is not stored.")
def fresh_rows_are_not_in_the_delta(patch: Patch) -> None:

    def keep(
        original: Callable[..., None], self: JoinBuffer, rows: pl.DataFrame
    ) -> None:
        fresh = self._fresh
        self._fresh = None
        original(self, rows)
        self._fresh = fresh

    wrapped(patch, JoinBuffer, "add", keep)


@mutant(flows.interval_joined_frames, "The only witness of a pair has gone.")
def witnesses_do_not_stay(patch: Patch) -> None:

    def stay(self: FrameIntervalJoinOperator, side: int) -> int:
        return self._reach[side][1]

    patch.setattr(FrameIntervalJoinOperator, "_stay", stay)
