"""Mistakes of time in loops: what may be promised while rows go round."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation import timed_loop_flows as flows
from tests.simulation.mutations import mutant, wrapped

from millstream.protocol.barrier import RoundEnd
from millstream.protocol.termination import ProbeReport, ProbeState, TerminationDetector
from millstream.protocol.watermark import END_OF_TIME
from millstream.runtime.free_head import FreeHeadIntake

if TYPE_CHECKING:
    from tests.simulation.mutations import Patch

    from millstream.protocol.watermark import Watermark
    from millstream.runtime.channels import InputChannel


@mutant(flows.timed_ring, "The input's watermark is passed on, whatever goes round.")
def rows_that_go_round_do_not_hold_time_back(patch: Patch) -> None:

    def watermark(
        original: Any, self: TerminationDetector, parts: list[ProbeReport]
    ) -> Watermark:
        blind = [replace(part, least=END_OF_TIME) for part in parts]
        made: Watermark = original(self, blind)
        return made

    wrapped(patch, TerminationDetector, "_watermark", watermark)


@mutant(
    flows.timed_ring,
    "A probe counts for the watermark that the input had behind it.",
    seed=20,
)
def watermarks_count_before_a_probe_has_begun(patch: Patch) -> None:

    def part(
        original: Any, self: ProbeState, watermark: Watermark | None
    ) -> ProbeReport:
        made: ProbeReport = original(self, watermark)
        return replace(made, before=made.now)

    wrapped(patch, ProbeState, "part", part)


@mutant(flows.timed_ring, "Rows that wait for a cut are overtaken by a look.", seed=167)
def looks_overtake_rows_that_are_held(patch: Patch) -> None:

    def note(
        original: Any, self: FreeHeadIntake, channel: InputChannel, element: Any
    ) -> None:
        if isinstance(element, RoundEnd):
            self._pass_mark(channel, element)
        else:
            original(self, channel, element)

    wrapped(patch, FreeHeadIntake, "_note", note)
