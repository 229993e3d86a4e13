"""Mistakes of functions with timers: what a restored one forgets, what a delta lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation import timer_flows as flows
from tests.simulation.mutations import mutant

from millstream.operators.rows.processing import ProcessOperator

if TYPE_CHECKING:
    from tests.simulation.mutations import Patch


@mutant(flows.event_timers, "Nobody knows which restored keys have timers.")
def restored_timers_are_not_found(patch: Patch) -> None:
    patch.setattr(ProcessOperator, "_find_restored", lambda _: None)


@mutant(
    flows.event_timers, "A timer that has fired is still in the next snapshot.", seed=71
)
def fired_timers_are_not_in_the_delta(patch: Patch) -> None:

    def entries_of(self: ProcessOperator, keys: list[Any]) -> dict[Any, Any]:
        return self.table.peek(keys)

    patch.setattr(ProcessOperator, "entries_of", entries_of)
