"""Mistakes of joins: what a restored one forgets, what a delta lacks, who meets whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation import join_flows as flows
from tests.simulation.mutations import mutant

from millstream.operators.joins import interval as joins_interval
from millstream.operators.joins.asof import AsofJoinOperator
from millstream.operators.joins.base import TimedJoinOperator
from millstream.operators.joins.interval import IntervalJoinOperator
from millstream.operators.joins.sides import WholeSides
from millstream.operators.joins.table import TableJoinOperator
from millstream.operators.joins.window import WindowJoinOperator
from millstream.protocol.watermark import BEGINNING

if TYPE_CHECKING:
    from tests.simulation.mutations import Patch


@mutant(flows.interval_joined, "Nobody knows when restored rows have to go.")
def restored_rows_are_never_dropped(patch: Patch) -> None:
    patch.setattr(IntervalJoinOperator, "index", lambda _: None)


@mutant(
    flows.interval_joined, "A row that came out alone is in the next snapshot.", seed=9
)
def dropped_rows_are_not_in_the_delta(patch: Patch) -> None:

    def entries_of(self: TimedJoinOperator, keys: list[Any]) -> dict[Any, Any]:
        return self.table.peek(keys)

    patch.setattr(TimedJoinOperator, "entries_of", entries_of)


@mutant(flows.window_joined, "A restored key says again what its last windows said.")
def restored_windows_end_again(patch: Patch) -> None:
    original = WindowJoinOperator._note_pane

    def noted(
        self: WindowJoinOperator, key: Any, _fired: int | None, pane: int
    ) -> None:
        original(self, key, None, pane)

    def indexed(self: WindowJoinOperator) -> None:
        self.due.clear()
        for entries in self.batches():
            for key, (_, panes) in entries:
                for pane in panes:
                    noted(self, key, None, pane)

    patch.setattr(WindowJoinOperator, "index", indexed)


@mutant(flows.interval_joined, "A late row meets whoever happens to be there.")
def late_rows_meet_by_chance(patch: Patch) -> None:
    patch.setattr(joins_interval, "origin_watermark", lambda _: BEGINNING)


@mutant(
    flows.nearest_joined, "A nearer row that comes later is not waited for.", seed=5
)
def nearest_is_decided_too_early(patch: Patch) -> None:
    original = AsofJoinOperator._decision

    def decided(self: AsofJoinOperator, time: int, right: list[Any]) -> Any:
        return original(self, time, right)._replace(time=time)

    patch.setattr(AsofJoinOperator, "_decision", decided)


@mutant(flows.tables_joined, "Left rows do not wait for the table.")
def nobody_waits_for_the_table(patch: Patch) -> None:
    original = TableJoinOperator.process

    def processed(self: TableJoinOperator, rows: list[Any], port: int) -> list[Any]:
        self._is_waiting = False
        return original(self, rows, port)

    patch.setattr(TableJoinOperator, "process", processed)


@mutant(flows.tables_joined, "A restored task has no copy of the table.")
def table_is_not_restored(patch: Patch) -> None:
    patch.setattr(WholeSides, "restore", lambda *_: None)
