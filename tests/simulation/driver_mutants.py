"""Mistakes around epochs, generations and the store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation import recovery_flows as flows
from tests.simulation.mutations import mutant, often, wrapped

import millstream.protocol.job
import millstream.runtime.takeover
import millstream.runtime.worker
import millstream.simulation.cluster
import millstream.state.store
from millstream.protocol.job import JobCore
from millstream.protocol.job_events import BeginGeneration
from millstream.protocol.snapshot_events import Started
from millstream.protocol.snapshots import Phase, SnapshotCore
from millstream.runtime.manifests import ManifestBuilder
from millstream.runtime.results import Results
from millstream.runtime.sealing import Sealer
from millstream.runtime.snapshots import SnapshotCoordinator, _Piece
from millstream.runtime.worker import Worker
from millstream.simulation.disk import VirtualDisk
from millstream.simulation.options import FaultKind
from millstream.state.layout import ManifestId
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from tests.simulation.mutations import Patch

    from millstream.protocol.ids import Epoch
    from millstream.protocol.snapshot_events import Store

# Epochs


@mutant(flows.counted, "The coordinator does not wait for all tasks.", seed=1)
def one_seal_completes_an_epoch(patch: Patch) -> None:

    def is_through(self: SnapshotCore) -> bool:
        assert self._barrier is not None
        return any(s.epoch == self._barrier.epoch for s in self._sealed)

    patch.setattr(SnapshotCore, "_is_through", is_through)


@mutant(
    flows.counted,
    "The end of a task is taken for an end before the epoch that it cut last.",
    seed=7,
)
def a_task_that_cut_counts_as_ended(patch: Patch) -> None:

    def has_ended(self: SnapshotCore, task: Any, _: Epoch) -> bool:
        return task in self._ended

    patch.setattr(SnapshotCore, "_has_ended_before", has_ended)


@mutant(
    flows.in_order, "Only what was sealed for the epoch itself is committed.", seed=15
)
def transactions_of_abandoned_epochs_are_lost(patch: Patch) -> None:

    def store(original: Any, self: SnapshotCore) -> Any:
        assert self._barrier is not None
        epoch = self._barrier.epoch
        self._sealed = [s for s in self._sealed if s.epoch == epoch]
        return original(self)

    wrapped(patch, SnapshotCore, "_store", store)


@mutant(flows.in_order, "What a sink sealed at its end is in no epoch.")
def last_words_are_not_committed(patch: Patch) -> None:

    def store(original: Any, self: SnapshotCore) -> Any:
        (command,) = original(self)
        ended = tuple(replace(e, transactions=()) for e in command.ended)
        self._storing = replace(command, ended=ended)
        return [self._storing]

    wrapped(patch, SnapshotCore, "_store", store)


@mutant(flows.in_order, "What is complete is handed to the next epoch again.")
def transactions_are_committed_twice(patch: Patch) -> None:

    def stored(original: Any, self: SnapshotCore, epoch: int) -> Any:
        sealed = self._sealed
        commands = original(self, epoch)
        self._sealed = sealed
        return commands

    wrapped(patch, SnapshotCore, "_handle_stored", stored)


@mutant(
    flows.in_order,
    "A crash in between shows rows that the next generation shows again.",
    seed=2,
)
def output_is_committed_before_the_manifest(patch: Patch) -> None:

    def store(original: Any, self: SnapshotCoordinator, command: Store) -> None:
        original(self, command)
        self._commit(command.epoch)
        self._pending -= 1

    def done(original: Any, self: SnapshotCoordinator, done: Any) -> None:
        if self._core.phase is Phase.COMMITTING or done.tag[0].name != "COMMIT":
            original(self, done)

    wrapped(patch, SnapshotCoordinator, "_store_epoch", store)
    wrapped(patch, SnapshotCoordinator, "_handle_done", done)


@mutant(
    flows.in_order,
    "The recovery goes back to an epoch whose output nobody sees.",
    seed=43,
)
def an_interrupted_epoch_is_not_committed(patch: Patch) -> None:

    def commit(original: Any, self: SnapshotCoordinator, epoch: Epoch) -> None:
        if self._core._is_interrupted:
            self._submit(_Piece.COMMIT, epoch, lambda: None)
        else:
            original(self, epoch)

    wrapped(patch, SnapshotCoordinator, "_commit", commit)


@mutant(
    flows.counted, "It goes back to the epoch before one that completes a moment later."
)
def recovery_does_not_wait_for_the_manifest(patch: Patch) -> None:

    def interrupted(original: Any, self: SnapshotCore) -> Any:
        if self.phase in {Phase.STORING, Phase.COMMITTING}:
            self.phase = Phase.OPEN
        return original(self)

    wrapped(patch, SnapshotCore, "_handle_interrupted", interrupted)


# Generations


@mutant(
    flows.in_order,
    "What was on its way when a worker was lost is heard after the recovery.",
    seed=1,
)
def generation_stays_the_same(patch: Patch) -> None:

    def interrupt(original: Any, self: JobCore, reason: str, **kind: bool) -> Any:
        commands = original(self, reason, **kind)
        self.generation -= bool(commands)
        return commands

    wrapped(patch, JobCore, "_interrupt", interrupt)


@mutant(flows.in_order, "A worker takes rows of any generation.", seed=6)
def old_packets_are_read(patch: Patch) -> None:

    def handle(original: Any, self: Worker, peer: Any, packet: Any) -> None:
        packet.generation = max(packet.generation, self._generation)
        original(self, peer, packet)

    wrapped(patch, Worker, "_handle_packet", handle)


@mutant(
    flows.in_order,
    "What a task of an earlier generation stored gets into a manifest.",
    seed=45,
)
def old_seals_are_told_as_new_ones(patch: Patch) -> None:

    def poll(original: Any, self: Sealer) -> Any:
        newest = getattr(self, "newest", 0)
        return [replace(report, generation=newest) for report in original(self)]

    def deploy(original: Any, self: Worker, message: Any) -> None:
        self._sealer.newest = message.generation  # type: ignore[attr-defined]
        original(self, message)

    wrapped(patch, Sealer, "poll", poll)
    wrapped(patch, Worker, "_deploy", deploy)


@mutant(flows.in_order, "The snapshot is there, and nobody restores it.")
def recovery_begins_at_the_beginning(patch: Patch) -> None:

    def settled(original: Any, self: JobCore, _: Any) -> Any:
        return original(self, (0, 0))

    wrapped(patch, JobCore, "_handle_settled", settled)


@mutant(flows.counted, "Tasks are placed where nobody is.")
def a_lost_worker_keeps_its_tasks(patch: Patch) -> None:
    module = millstream.protocol.job

    def place(original: Any, before: Any, workers: Any, count: int) -> Any:
        return before or original(before, workers, count)

    wrapped(patch, module, "place", place)


@mutant(flows.counted, "State is restored, and the input is read from its beginning.")
def sources_forget_where_they_were(patch: Patch) -> None:

    def beginning(original: Any, *arguments: Any) -> Any:
        return replace(original(*arguments), offsets={})

    wrapped(patch, millstream.runtime.worker, "beginning_of", beginning)


@mutant(flows.in_order, "Rows that came after the snapshot come once more.")
def results_do_not_go_back(patch: Patch) -> None:
    patch.setattr(Results, "go_back", lambda *_: None)


@mutant(
    flows.in_order,
    "A driver that is started again knows nothing of the rows before.",
    seed=9,
)
def results_are_not_stored(patch: Patch) -> None:
    patch.setattr(ManifestBuilder, "_results", lambda *_: ())


@mutant(
    flows.in_order,
    "Rows that came after the cut are in the file, and come once more.",
    seed=32,
)
def results_of_an_epoch_too_many_are_stored(patch: Patch) -> None:

    def between(original: Any, self: Results, since: int, epoch: int) -> Any:
        return original(self, since, epoch + 1)

    wrapped(patch, Results, "between", between)


# Upkeep


@mutant(flows.counted, "Merges that were begun before a pause are waited for after it.")
def merges_of_an_older_generation_are_waited_for(patch: Patch) -> None:

    def handle(original: Any, self: SnapshotCoordinator, event: Any) -> None:
        stages = dict(self.manifests.compactions._stages)
        original(self, event)
        if isinstance(event, Started):
            self.manifests.compactions._stages |= stages

    wrapped(patch, SnapshotCoordinator, "handle", handle)
    patch.setattr(SnapshotCoordinator, "is_running", True)


@mutant(
    flows.in_order,
    "A pause is asked for before the tasks of the generation run, and forgotten.",
    seed=36,
)
def a_second_spare_is_forgotten(patch: Patch) -> None:
    often(patch, FaultKind.CRASH, is_driver=False)

    def handle_ready(original: Any, self: JobCore, event: Any) -> list[Any]:
        commands = original(self, event)
        return sorted(commands, key=lambda each: isinstance(each, BeginGeneration))

    wrapped(patch, JobCore, "_handle_ready", handle_ready)


@mutant(flows.counted, "What nobody needs stays for ever.", seed=4)
def files_of_a_lost_generation_stay(patch: Patch) -> None:

    def is_garbage(original: Any, self: SnapshotStore, name: str, oldest: Any) -> bool:
        return "-1.state" in name and bool(original(self, name, oldest))

    wrapped(patch, SnapshotStore, "_is_garbage", is_garbage)


# The store


@mutant(flows.counted, "The disk is full, and the manifest lists half a file.", seed=25)
def a_failed_write_is_told_as_a_success(patch: Patch) -> None:

    def create(original: Any, self: Any, name: str, chunks: Any) -> None:
        with suppress(OSError):
            original(self, name, chunks)

    wrapped(patch, VirtualDisk, "create", create)


@mutant(flows.counted, "The collector forgets what the newest manifests need.")
def files_that_a_manifest_lists_are_garbage(patch: Patch) -> None:
    patch.setattr(SnapshotStore, "_needed", lambda *_: [])


@mutant(flows.counted, "The collector takes what no manifest lists yet.")
def files_of_the_running_epoch_are_garbage(patch: Patch) -> None:
    patch.setattr(SnapshotStore, "_is_garbage", lambda *_: True)


@mutant(flows.in_order, "Two drivers write and commit at the same time.", seed=2)
def an_older_claim_goes_on(patch: Patch) -> None:
    often(patch, FaultKind.TAKEOVER, is_driver=True)
    patch.setattr(SnapshotStore, "is_current", lambda *_: True)


@mutant(flows.in_order, "What a superseded driver added is restored.", seed=44)
def the_highest_epoch_is_the_newest(patch: Patch) -> None:
    often(patch, FaultKind.TAKEOVER, is_driver=True)
    often(patch, FaultKind.CRASH, is_driver=True)

    def history(manifests: Any, _: Any) -> list[ManifestId]:
        return sorted(
            manifests, key=lambda each: (each.epoch, each.claim), reverse=True
        )

    patch.setattr(millstream.state.store, "history", history)


@mutant(flows.scanned, "Nobody compares length and digest.", seed=238)
def damaged_files_are_believed(patch: Patch) -> None:
    often(patch, FaultKind.DAMAGE, is_driver=False)

    def verified(self: SnapshotStore, ref: Any) -> tuple[bytes, str]:
        with suppress(FileNotFoundError):
            return self.files.read(ref.name), ""
        return b"", ""

    patch.setattr(SnapshotStore, "_verified", verified)


@mutant(
    flows.in_order,
    "An older epoch is used although the sinks have committed a newer one.",
)
def visible_output_is_gone_back_behind(patch: Patch) -> None:
    often(patch, FaultKind.DAMAGE, is_driver=False)
    often(patch, FaultKind.CRASH, is_driver=True)
    patch.setattr(millstream.runtime.takeover, "refuse_repetition", lambda *_: None)


@mutant(
    flows.stateful,
    "The job goes on from an older epoch, and its deltas from the damaged one.",
    seed=65,
)
def deltas_build_on_a_damaged_epoch(patch: Patch) -> None:
    often(patch, FaultKind.DAMAGE, is_driver=False)

    def fell_back(original: Any, self: SnapshotCore, epoch: int) -> Any:
        base = self._base_epoch
        commands = original(self, epoch)
        self._base_epoch = base
        return commands

    wrapped(patch, SnapshotCore, "_handle_fell_back", fell_back)


@mutant(
    flows.in_order,
    "A damaged manifest is removed with its note, and the next driver begins earlier.",
    seed=41,
)
def proofs_of_epochs_are_garbage(patch: Patch) -> None:
    often(patch, FaultKind.DAMAGE, is_driver=False)
    often(patch, FaultKind.CRASH, is_driver=True)

    def retained(original: Any, self: SnapshotStore, *arguments: Any) -> Any:
        found = original(self, *arguments)
        return {each: manifest for each, manifest in found.items() if manifest}

    def old_notes(self: SnapshotStore) -> list[str]:
        return list(self.files.names("newest"))

    wrapped(patch, SnapshotStore, "_retained", retained)
    patch.setattr(SnapshotStore, "_old_notes", old_notes)


@mutant(
    flows.in_order,
    "The driver before crashed between its manifest and the commit.",
    seed=10,
)
def the_last_transactions_are_not_committed_again(patch: Patch) -> None:
    often(patch, FaultKind.CRASH, is_driver=True)

    def take_over(original: Any, *arguments: Any, **options: Any) -> Any:
        claim, newest = original(*arguments, **options)
        return claim, newest and replace(newest, transactions=())

    wrapped(patch, millstream.simulation.cluster, "take_over", take_over)


@mutant(
    flows.in_order,
    "The next one takes what the one before it had added for the history.",
    seed=410,
)
def a_driver_does_not_say_where_it_went_on(patch: Patch) -> None:
    often(patch, FaultKind.TAKEOVER, is_driver=True)
    often(patch, FaultKind.CRASH, is_driver=True)

    def adopt(self: SnapshotStore, manifest: Any) -> None:
        self._last = ManifestId(0, 0)
        if manifest is not None:
            self._last = ManifestId(manifest.claim, manifest.epoch)
        self._live = manifest

    patch.setattr(SnapshotStore, "adopt", adopt)
