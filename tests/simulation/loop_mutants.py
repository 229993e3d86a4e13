"""Mistakes of loops: what is logged, when rounds begin and end, what heads go on with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation import loop_flows as flows
from tests.simulation.mutations import mutant, wrapped

import millstream.operators.loops.rounds
import millstream.protocol.snapshots
import millstream.simulation.options
from millstream.operators.loops.frame_rounds import FrameDeltaRound
from millstream.operators.loops.rounds import _DeltaRound
from millstream.plan.iteration import RoundState
from millstream.protocol.align import Aligner, DeliverBatch, Phase
from millstream.protocol.rounds import Decider, EpochPassedOn
from millstream.protocol.termination import (
    ProbeReport,
    TerminationDetector,
    TerminationProbe,
)
from millstream.runtime.chain import Chain
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.free_head import FreeHeadIntake, InFlight
from millstream.runtime.head import HeadIntake
from millstream.runtime.outputs import Outputs
from millstream.runtime.task import Task
from millstream.state.kept_batches import KeptBatches
from millstream.state.table import MemoryTable

if TYPE_CHECKING:
    from tests.simulation.mutations import Patch

    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import Epoch

# Cuts through free loops


@mutant(flows.ring, "What was under way in the loop is in no snapshot.")
def rows_in_flight_are_not_logged(patch: Patch) -> None:

    def handle(original: Any, self: Aligner, *arguments: Any) -> Any:
        commands = original(self, *arguments)
        self._logged.clear()
        return commands

    wrapped(patch, Aligner, "_handle_batch", handle)


@mutant(flows.ring, "What came behind the barrier is logged, and made once more.")
def rows_behind_the_barrier_are_logged(patch: Patch) -> None:

    def handle(original: Any, self: Aligner, channel: Any, batch: Any) -> Any:
        if self.phase is Phase.LOGGING and channel in self._marked:
            self._logged.append((channel, batch))
        return original(self, channel, batch)

    wrapped(patch, Aligner, "_handle_batch", handle)


@mutant(
    flows.relay,
    "What follows an early barrier gets into the epoch before it.",
    seed=5116,
)
def rows_behind_an_early_barrier_are_not_held(patch: Patch) -> None:

    def handle(original: Any, self: Aligner, channel: Any, batch: Any) -> Any:
        if self.phase is Phase.ALIGNING and channel in self._marked:
            return [DeliverBatch(channel, batch)]
        return original(self, channel, batch)

    wrapped(patch, Aligner, "_handle_batch", handle)


@mutant(flows.ring, "The log is stored, and nobody reads it.", seed=4)
def logged_rows_do_not_come_round_again(patch: Patch) -> None:
    patch.setattr(FreeHeadIntake, "_deliver_restored", lambda *_: None)


@mutant(flows.ring, "The log of one cut is stored with those after it as well.", seed=6)
def logs_add_up(patch: Patch) -> None:

    def fill(original: Any, self: InFlight, batches: list[Any]) -> None:
        self.before = [*getattr(self, "before", []), *batches]  # type: ignore[attr-defined]
        original(self, self.before)  # type: ignore[attr-defined]

    wrapped(patch, InFlight, "fill", fill)


@mutant(flows.ring, "A cut does not wait for its barrier to come round.")
def a_loop_is_sealed_at_its_cut(patch: Patch) -> None:

    def cut(original: Any, self: Aligner) -> Any:
        self._marked |= self._back
        return original(self)

    wrapped(patch, Aligner, "_cut", cut)


# How free loops end


@mutant(flows.ring, "The loop ends although rows came round while it was looked at.")
def a_look_that_found_rows_is_enough(patch: Patch) -> None:

    def look(self: TerminationDetector, parts: list[ProbeReport]) -> list[Any]:
        has_looked = all(part.before is None for part in parts)
        return self._decided(TerminationProbe(), is_over=has_looked)

    patch.setattr(TerminationDetector, "_probe_for_end", look)


@mutant(flows.saved, "No final flush is asked for while its rows could go round.")
def last_words_come_when_the_loop_is_over(patch: Patch) -> None:

    def decided(
        original: Any,
        self: TerminationDetector,
        look: TerminationProbe,
        *,
        is_over: bool = False,
    ) -> list[Any]:
        words = look.asks_flush
        # Quiet probes without the question would be found before any row is missed.
        look = replace(look, quiet=0 if words else look.quiet, asks_flush=False)
        made: list[Any] = original(self, look, is_over=is_over or words)
        return made

    wrapped(patch, TerminationDetector, "_decided", decided)


@mutant(
    flows.saved, "Snapshots still have state that a final flush has emitted.", seed=9
)
def keys_that_said_their_last_words_come_back(patch: Patch) -> None:
    patch.setattr(MemoryTable, "delete_all", MemoryTable.clear)


@mutant(flows.enough, "A head ends before a cut, another one behind it.", seed=4)
def unread_loops_are_over_at_once(patch: Patch) -> None:

    def note(original: Any, self: TerminationDetector, unread: Any) -> list[Any]:
        if not original(self, unread):
            return []
        return self._decided(TerminationProbe(), is_over=True)

    wrapped(patch, TerminationDetector, "note_unread", note)


@mutant(
    flows.ticking,
    "What was under way is not stored, as nobody reads it any more.",
    seed=16,
)
def unread_loops_log_nothing(patch: Patch) -> None:
    patch.setattr(FreeHeadIntake, "_is_unsettled", property(lambda _: False))


@mutant(flows.enough, "Who writes to a task that has ended is not told.", seed=3)
def tasks_that_had_ended_close_nothing(patch: Patch) -> None:

    def end(original: Any, self: Task) -> None:
        original(self)
        self.intake.close()

    wrapped(patch, Task, "end_at_once", end)


# Rounds


@mutant(flows.iterated, "The body is not empty at the cut.", seed=2)
def epochs_are_passed_on_inside_a_round(patch: Patch) -> None:

    def announce(self: Decider, barrier: Barrier) -> list[Any]:
        del self
        return [EpochPassedOn(barrier)]

    patch.setattr(Decider, "announce", announce)


@mutant(flows.cycled, "Heads wait for a decision that was on its way.", seed=6)
def the_decider_does_not_repeat_itself(patch: Patch) -> None:
    patch.setattr(Decider, "repeat", lambda _: [])


@mutant(flows.iterated, "A decision that is repeated is carried out once more.", seed=6)
def heads_forget_what_they_carried_out(patch: Patch) -> None:

    def put(
        original: Any, self: HeadIntake, values: list[tuple[bool, int, int]]
    ) -> None:
        original(self, values)
        self._head.decided = 0

    wrapped(patch, HeadIntake, "_put", put)


@mutant(flows.iterated, "Rows of a round come round before it has begun here.")
def heads_read_rows_of_the_next_round(patch: Patch) -> None:
    patch.setattr(HeadIntake, "_read", ChannelIntake._read)


@mutant(flows.iterated, "What was seen in the round before counts as seen in this one.")
def operators_do_not_begin_anew(patch: Patch) -> None:
    patch.setattr(Chain, "reset", lambda *_: None)


@mutant(flows.cycled, "Rows are shown the state of the round before.")
def the_gate_is_always_open(patch: Patch) -> None:

    def init(
        original: Any, self: ChannelIntake, *arguments: Any, **options: Any
    ) -> None:
        original(self, *arguments, **options | {"loop_state": None})

    wrapped(patch, ChannelIntake, "__init__", init)


@mutant(flows.cycled, "New tasks take the round of former ones for theirs.", seed=22)
def states_of_rounds_outlive_their_tasks(patch: Patch) -> None:
    patch.setattr(RoundState, "reset", lambda _: None)


@mutant(
    flows.cycled,
    "A round begins before a cut in front of it, which waits for the cut before that.",
    seed=16,
)
def decisions_overtake_epochs(patch: Patch) -> None:
    # Epochs are given up, and the next one opened, before they have gone round.
    patch.setattr(millstream.simulation.options, "_LAP_TURNS", 40)
    patch.setattr(millstream.protocol.snapshots, "_PATIENCE_MAX", 1)
    patch.setattr(HeadIntake, "_is_cut_first", lambda _: False)


@mutant(
    flows.iterated,
    "The decider leaves when its heads do, before it has cut what they have cut.",
    seed=82,
)
def tasks_before_a_head_are_abandoned(patch: Patch) -> None:

    def are_abandoned(self: Outputs) -> bool:
        return bool(self.of_rows) and all(c.is_closed for c in self.of_rows)

    patch.setattr(Outputs, "are_abandoned", property(are_abandoned))


# What heads hold


@mutant(flows.iterated, "Rows of former rounds come back with a recovery.", seed=6)
def a_new_round_does_not_take_the_place_of_the_last(patch: Patch) -> None:

    def capture(original: Any, self: KeptBatches, epoch: Epoch, since: Epoch) -> Any:
        self._cleared_at = 0
        return original(self, epoch, since)

    wrapped(patch, KeptBatches, "capture", capture)


@mutant(flows.cycled, "Only what came after the last cut is restored.", seed=6)
def every_epoch_stands_for_everything(patch: Patch) -> None:

    def capture(original: Any, self: KeptBatches, epoch: Epoch, since: Epoch) -> Any:
        return replace(original(self, epoch, since), is_anew=True)

    wrapped(patch, KeptBatches, "capture", capture)


@mutant(flows.components, "Keys that became better before the cut are not told on.")
def the_work_set_is_not_restored(patch: Patch) -> None:

    def resume(self: _DeltaRound, number: int, begun: int) -> None:
        del begun
        self._number = number

    patch.setattr(_DeltaRound, "resume", resume)


@mutant(flows.shortest, "All rows count as those that became better long ago.", seed=5)
def the_work_set_of_frames_is_not_restored(patch: Patch) -> None:
    patch.setattr(FrameDeltaRound, "resume", lambda *_: None)
