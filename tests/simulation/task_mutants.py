"""Mistakes of tasks: when they cut, what they capture, what they restore."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation import recovery_flows as flows
from tests.simulation.mutations import mutant, wrapped

import millstream.simulation.cluster
import millstream.state.table
from millstream.protocol.align import Aligner
from millstream.runtime.chain import Chain
from millstream.runtime.channels import InputChannel, OutputChannel
from millstream.runtime.compacting import Compactions
from millstream.runtime.cutter import Cutter
from millstream.runtime.restoring import Restoration
from millstream.runtime.sealing import Sealer
from millstream.runtime.source_intake import SourceIntake
from millstream.runtime.task import Task
from millstream.state.dirty_keys import DirtyKeys
from millstream.state.row_codec import DELETED

if TYPE_CHECKING:
    from tests.simulation.mutations import Patch

    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import Epoch, Generation

# Alignment and cuts


@mutant(flows.merged, "A task does not wait for the barriers of its other channels.")
def cut_at_the_first_barrier(patch: Patch) -> None:

    def handle(original: Any, self: Aligner, channel: Any, barrier: Barrier) -> Any:
        if barrier.epoch <= self._last_epoch:
            return []
        self._marked = set(self._forward) - {channel}
        return original(self, channel, barrier)

    wrapped(patch, Aligner, "_handle_barrier", handle)


@mutant(flows.merged, "Rows behind a barrier get into the epoch before it.", seed=11)
def marked_channels_are_read_on(patch: Patch) -> None:
    never = property(lambda _: False, lambda *_: None)
    patch.setattr(InputChannel, "is_blocked", never, raising=False)


@mutant(flows.merged, "A channel that has ended will never bring its barrier.", seed=3)
def ended_channels_are_waited_for(patch: Patch) -> None:
    patch.setattr(Aligner, "_handle_end", lambda *_: [])


@mutant(flows.counted, "What was buffered before the cut leaves after it.")
def barrier_overtakes_the_rows(patch: Patch) -> None:

    def put(self: OutputChannel, barrier: Barrier) -> None:
        if not self.is_closed:
            self.carrier.send_mark(barrier)

    patch.setattr(OutputChannel, "put_mark", put)


@mutant(flows.in_order, "A source says that it has read a row less than it has.")
def offsets_lag_behind(patch: Patch) -> None:

    def offsets(original: Any, self: SourceIntake) -> Any:
        return tuple((o, s, max(0, at - 1), d) for o, s, at, d in original(self))

    wrapped(patch, SourceIntake, "offsets", offsets)


@mutant(flows.in_order, "A source says that it has read a row more than it has.")
def offsets_run_ahead(patch: Patch) -> None:

    def offsets(original: Any, self: SourceIntake) -> Any:
        return tuple((o, s, at + 1, d) for o, s, at, d in original(self))

    wrapped(patch, SourceIntake, "offsets", offsets)


@mutant(flows.counted, "What a combiner holds back is in no state and in no channel.")
def held_rows_are_not_flushed(patch: Patch) -> None:
    patch.setattr(Chain, "flush", lambda *_: None)


@mutant(flows.in_order, "Rows written before the cut wait for the next one.", seed=3)
def sinks_are_not_sealed_at_a_cut(patch: Patch) -> None:

    def cut(original: Any, self: Cutter, barrier: Barrier) -> None:
        seal, self._seal = self._seal, lambda *_: None  # type: ignore[method-assign]
        original(self, barrier)
        self._seal = seal  # type: ignore[method-assign]

    wrapped(patch, Cutter, "cut", cut)


@mutant(
    flows.in_order,
    "They show rows to the driver that the next generation shows again.",
    seed=36,
)
def paused_tasks_go_on(patch: Patch) -> None:
    never = property(lambda _: False, lambda *_: None)
    patch.setattr(Cutter, "is_paused", never, raising=False)


# State


@mutant(flows.stateful, "A key that was deleted after the base comes back.")
def deletions_are_not_restored(patch: Patch) -> None:

    def apply(entries: dict[Any, Any], rows: list[tuple[Any, Any]]) -> None:
        entries.update(row for row in rows if row[1] is not DELETED)

    patch.setattr(millstream.state.table, "apply_rows", apply)


@mutant(
    flows.scanned,
    "What was touched before an epoch that was given up is in no delta.",
    seed=15,
)
def delta_only_of_the_last_epoch(patch: Patch) -> None:

    def since(self: DirtyKeys, _: Epoch) -> set[Any] | None:
        return self._by_epoch[max(self._by_epoch)]

    patch.setattr(DirtyKeys, "since", since)


@mutant(
    flows.scanned,
    "A complete epoch takes with it what was touched after its cut.",
    seed=1,
)
def touches_are_forgotten_too_early(patch: Patch) -> None:

    def complete(original: Any, self: DirtyKeys, epoch: Epoch) -> None:
        original(self, epoch)
        self.forget()

    wrapped(patch, DirtyKeys, "complete", complete)


@mutant(flows.zipped, "What a task keeps without keys is not in the snapshot.", seed=1)
def task_state_is_captured_empty(patch: Patch) -> None:
    patch.setattr(Task, "states", lambda _: {})


@mutant(
    flows.scanned,
    "The file of an epoch holds what was captured for the one before.",
    seed=1,
)
def captures_are_mixed_up(patch: Patch) -> None:

    last: dict[Any, Any] = {}

    def seal(original: Any, self: Sealer, cut: Any, generation: Generation) -> None:
        task = (id(self), cut.stage, cut.task)
        early = last.get(task, cut)
        last[task] = cut
        original(self, replace(cut, captures=early.captures), generation)

    wrapped(patch, Sealer, "seal", seal)


@mutant(flows.scanned, "Deltas are stored and never read.")
def only_bases_are_restored(patch: Patch) -> None:

    def is_wanted(original: Any, self: Restoration, ref: Any, *rest: Any) -> bool:
        return ref.is_base and bool(original(self, ref, *rest))

    wrapped(patch, Restoration, "_is_wanted", is_wanted)


@mutant(flows.scanned, "The oldest value wins.")
def deltas_are_applied_backwards(patch: Patch) -> None:

    def fill(original: Any, self: Restoration, task: Any, state: Any, own: Any) -> None:
        original(self, task, state, own[::-1])

    wrapped(patch, Restoration, "_fill", fill)


@mutant(
    flows.scanned,
    "What changed while deltas were merged is dropped with them.",
    seed=31,
)
def a_base_swallows_later_deltas(patch: Patch) -> None:

    def applied(self: Compactions, files: Any) -> Any:
        for number in self._finished():
            bases = self._stages[number].bases
            rest = [ref for ref in files if ref.stage != number]
            files = (*(bases[task] for task in sorted(bases)), *rest)
        return files

    eager = partial(Compactions, 1)
    patch.setattr(millstream.simulation.cluster, "Compactions", lambda _: eager())
    patch.setattr(Compactions, "applied", applied)
