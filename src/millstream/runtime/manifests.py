"""What is known of the last complete epoch, and the manifest that follows from it.

Pure bookkeeping: nothing here reads or writes a file, or knows when an epoch is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError
from millstream.plan.ended import live_operators, remains_of
from millstream.plan.nodes import Read
from millstream.runtime.compacting import Compactions
from millstream.runtime.restoring import is_same_plan
from millstream.state.keyhash import KEY_HASH_VERSION
from millstream.state.manifest import FORMAT, FileRef, Manifest
from millstream.state.plain import OBJECTS, decode, form_of

if TYPE_CHECKING:
    from millstream.protocol import snapshot_events as events
    from millstream.protocol.messages import Ended, Sealed, SnapshotId, StoredFile
    from millstream.runtime.deployment import Deployment
    from millstream.state.manifest import Transaction

__all__ = ["ManifestBuilder", "check_readable", "transactions_of"]


@dataclass(slots=True)
class ManifestBuilder:
    """What is known of the last complete epoch, to build the next manifest on."""

    deployment: Deployment
    claim: int
    manifest: Manifest | None = None
    splits: FileRef | None = None
    compactions: Compactions = field(default_factory=Compactions)

    @property
    def snapshot(self) -> SnapshotId:
        """The last complete epoch, as messages name it."""
        before = self.manifest
        return (0, 0) if before is None else (before.claim, before.epoch)

    def next_manifest(
        self,
        store: events.Store,
        generation: int,
        rows: FileRef | None,
        duration_ms: int,
        created: str = "",
    ) -> Manifest:
        """Return the manifest of the epoch whose tasks have all sealed."""
        before, deployment = self.manifest, self.deployment
        sealed = [report for report in store.sealed if report.epoch == store.epoch]
        return Manifest(
            format=FORMAT,
            job=deployment.job,
            plan_hash=deployment.plan_hash,
            epoch=store.epoch,
            parent_epoch=0 if before is None else before.epoch,
            generation=generation,
            claim=self.claim,
            run=deployment.run,
            shard_count=deployment.config.shard_count,
            key_hash_version=KEY_HASH_VERSION,
            task_count=deployment.worker_count,
            files=self._files(store, sealed),
            offsets=self._offsets(store, sealed),
            splits=self.splits,
            results=self._results(rows),
            transactions=transactions_of(store),
            ended=tuple(sorted(store.ended_tasks)),
            left=tuple((*task, n) for task, n in sorted(self._left(store).items())),
            ended_operators=self._ended_operators(store),
            operators=self._operators(sealed),
            duration_ms=duration_ms,
            created=created,
            flow=deployment.stages.name,
            sources=deployment.sources,
            fingerprints=deployment.fingerprints,
        )

    def _files(self, store: events.Store, sealed: list[Sealed]) -> tuple[FileRef, ...]:
        """Add the new deltas; what a task that ended had left is needed no more.

        Bases need nothing before them: the first epoch has only those, and so has the
        first one of a job that goes on with other tasks.
        """
        before: tuple[FileRef, ...] = ()
        if self.manifest is not None and store.since > 0:
            before = self.compactions.applied(self.manifest.files)
        kept = [r for r in before if (r.stage, r.task) not in store.ended_tasks]
        kept += [
            _reference(report.file, report, since=store.since)
            for report in sealed
            if report.file is not None
        ]
        return tuple(kept)

    def _offsets(
        self, store: events.Store, sealed: list[Sealed]
    ) -> dict[str, dict[str, tuple[int, bool]]]:
        before = {} if self.manifest is None else self.manifest.offsets
        offsets = {
            operator: dict(splits)
            for operator, splits in before.items()
            if operator in self.deployment.sources
        }
        reports: list[Sealed | Ended] = [*sealed, *store.ended]
        for report in reports:
            for operator, split, offset, is_done in report.offsets:
                offsets.setdefault(operator, {})[split] = (offset, is_done)
        return offsets

    def _results(self, rows: FileRef | None) -> tuple[FileRef, ...]:
        before = () if self.manifest is None else self.manifest.results
        return before if rows is None else (*before, rows)

    def _left(self, store: events.Store) -> dict[tuple[int, int], int]:
        """Return how many operators of tasks were left, of those that ended before too."""
        left: dict[tuple[int, int], int] = {}
        before, deployment = self.manifest, self.deployment
        if before is not None and is_same_plan(before, deployment):
            left = {(stage, task): count for stage, task, count in before.left}
        elif before is not None:
            unread = remains_of(deployment.stages, before.finished_operators).unread
            for stage in deployment.stages.stages:
                if stage.id in unread:
                    tasks = deployment.tasks(stage)
                    left |= dict.fromkeys(tasks, len(stage.nodes))
        for report in store.ended:
            task = (report.stage, report.task)
            left[task] = max(left.get(task, 0), report.nodes_left)
        return {task: n for task, n in left.items() if n and task in store.ended_tasks}

    def _ended_operators(self, store: events.Store) -> tuple[tuple[str, bool], ...]:
        """Return the operators all of whose tasks have ended; that is never taken back.

        One that was left may be read again: then it goes on, and has not ended.
        """
        stages = self.deployment.stages
        names = {node.name for stage in stages.stages for node in stage.nodes}
        before = () if self.manifest is None else self.manifest.ended_operators
        finished = {name for name, was_left in before if name in names and not was_left}
        live = live_operators(stages, finished)
        found = {n: True for n, was_left in before if n in names - live and was_left}
        left = self._left(store)
        for stage in stages.stages:
            tasks = self.deployment.tasks(stage)
            if tasks <= store.ended_tasks:
                most = max(left.get(task, 0) for task in tasks)
                for place, node in enumerate(stage.nodes):
                    if not isinstance(node.spec, Read):
                        found[node.name] = place < most
        found |= dict.fromkeys(finished, False)
        return tuple(sorted(found.items()))

    def _operators(self, sealed: list[Sealed]) -> tuple[str, ...]:
        before = () if self.manifest is None else self.manifest.operators
        now = {n for s in sealed if s.file is not None for n in s.file[3]}
        known = self.deployment.fingerprints.keys()
        return tuple(sorted(now.union(known & set(before))))


def _reference(file: StoredFile, report: Sealed, *, since: int) -> FileRef:
    name, length, digest, operators = file
    return FileRef(
        name, length, digest, tuple(operators), since == 0, report.epoch, since,
        report.stage, report.task,
    )  # fmt: skip


def transactions_of(store: events.Store) -> tuple[Transaction, ...]:
    """Return what the sinks sealed up to an epoch."""
    reports: list[Sealed | Ended] = [*store.sealed, *store.ended]
    return tuple(
        (operator, report.task, payload)
        for report in reports
        for operator, payload in report.transactions
    )


def check_readable(transactions: tuple[Transaction, ...]) -> None:
    """Raise `SnapshotError` if the driver cannot read what a sink sealed.

    A manifest that relies on it could never be committed, in this run or a later one.  What
    has no objects of the user's classes was read when the worker reported it.  Objects may
    raise any `BaseException`.
    """
    for sink, task, payload in transactions:
        if form_of(payload) != OBJECTS:
            continue
        try:
            decode(payload)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            msg = (
                f"what task {task} of {sink!r} sealed cannot be read where the job was "
                f"started ({type(error).__name__}: {error}); let `seal` return plain "
                "values, or objects of classes that can be imported there too"
            )
            raise SnapshotError(msg) from error
