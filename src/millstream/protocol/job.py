"""The life of a job as its coordinator sees it.

This module decides when workers are deployed, started, stopped and released, and how
the job ends.  It does not know how a message reaches a worker, how a worker is
started, or what time it is: times arrive inside events.

Theory of operation
-------------------
::

    REGISTERING --all registered--> CONNECTING --all ready--> RUNNING --all finished-->
        ^                              |    ^                     |          COMMITTING
        |                         interrupted                interrupted          |
        |                              v    |                     |           committed
        +------ nobody is left --- RESOLVING_EPOCH <--------------+               |
                                                                                  v
    any of them --failure, loss, cancellation, timeout--> STOPPING <--------------+
                                            --everybody gone, or grace over--> ENDED

STOPPING follows success as well: workers are released and must disconnect, so that an
ended job has left nothing behind.

**Recovery.**  A job that keeps snapshots survives a lost worker, a broken link and a
function that raises.  It is *interrupted*: it waits in RESOLVING_EPOCH until it is known which
epoch to go back to (`Settled`), places the tasks on the workers that are left and
deploys them from that epoch.  A worker that cannot restore it, because its files are
damaged, interrupts the job once more, for an older one.  The generation goes up with the
interruption, so that
nothing said before it is heard after it; a replacement is asked for at once
(`StartWorker`) under an id that nobody had before.  A worker that comes while the job
runs is a spare: a pause is asked for (`RequestPause`), and at its epoch (`PauseReached`)
tasks are placed anew.

What keeps failing ends the job: the same failure of a worker or its functions more than
`restarts_max` times, or more than `LOSSES_MAX` losses and broken links, without a calm time
between (see `millstream.protocol.restarts`).
Before the first generation there is nothing to go back to: a worker that is lost then, or
dies before it has registered, is replaced in its place, `restarts_max` times.

**Without snapshots** the first loss fails the job, when its reason has come or nothing has
for a moment (see `millstream.protocol.absences`).  `lost_workers` names the workers whose
launcher may still give one.

Invariants (see `JobCore.validate`)
-----------------------------------
1. A job has an outcome exactly when it is STOPPING or ENDED.
2. Only workers that were asked for register, and only ready workers are finished.
3. Every task is placed on a worker of the present generation while the job runs, evenly,
   and from a snapshot.  All of these are ready while it is RUNNING, and finished while it
   is COMMITTING.
4. In a job that recovers, as many workers are there or on their way as there are tasks,
   until it is COMMITTING; no other job waits for a reason, and nobody who is gone is suspected.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, assert_never

from millstream.protocol import job_events as events
from millstream.protocol.absences import Absences
from millstream.protocol.ids import PeerId
from millstream.protocol.job_events import (
    Command,
    Event,
    Outcome,
    OutcomeKind,
    SendMessage,
)
from millstream.protocol.job_member import JobMember
from millstream.protocol.job_words import (
    deployed_words,
    loss_words,
    outcome_words,
    restored_words,
    unconnected_words,
    unregistered_words,
    unreleased_words,
)
from millstream.protocol.messages import Deploy, Release, Start, Stop
from millstream.protocol.placement import place
from millstream.protocol.restarts import DAMAGE, LASTING, Restarts
from millstream.protocol.story import Severity, Story

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.messages import Failed, Member, Message, SnapshotId

__all__ = ["JobCore", "Phase"]


class Phase(Enum):
    """Where a job stands."""

    REGISTERING = auto()
    CONNECTING = auto()
    RUNNING = auto()
    RESOLVING_EPOCH = auto()
    COMMITTING = auto()
    STOPPING = auto()
    ENDED = auto()


class JobCore:
    """Decide over the life of one job.

    Parameters
    ----------
    workers
        Ids of the workers that were asked for; each hosts one task of every stage.
    snapshot
        Where to begin.
    restarts_max
        How often a job with snapshots goes back for the same failure of a user
        function before it ends; None for a job without snapshots.
    is_complete
        Whether there is nothing to do: the job is over when it begins.
    now_ns, launch_ns, lease_ns, grace_ns
        The time now, and how long workers may take to come, be silent, and leave.
    story
        Where decisions are told.
    """

    def __init__(
        self,
        workers: Iterable[PeerId],
        *,
        now_ns: int,
        launch_ns: int,
        lease_ns: int,
        grace_ns: int,
        restarts_max: int | None = None,
        generation: int = 0,
        snapshot: SnapshotId = (0, 0),
        is_complete: bool = False,
        story: Story | None = None,
    ) -> None:
        self.phase = Phase.ENDED if is_complete else Phase.REGISTERING
        self.story = story or Story(now_ns)
        self.outcome = Outcome(OutcomeKind.SUCCEEDED) if is_complete else None
        if is_complete:
            text = f"the job was complete in epoch {snapshot[1]}; nothing is run"
            self.story.add(now_ns, "job", text)
        self.generation = generation + 1
        #: The worker that hosts each task index.
        self.placement: tuple[PeerId, ...] = ()
        self._expected = list(workers)
        self._task_count = len(self._expected)
        self._members: dict[PeerId, JobMember] = {}
        self._exited: dict[PeerId, str] = {}
        self._absences = Absences()
        self._snapshot: SnapshotId | None = snapshot
        self._restarts = None if restarts_max is None else Restarts(restarts_max)
        self._is_recovering = False
        self._now_ns = now_ns
        self._launch_deadline_ns = now_ns + launch_ns
        self._launch_ns = launch_ns
        self._lease_ns = lease_ns
        self._grace_ns = grace_ns
        self._stop_deadline_ns = 0
        assert self._expected, "a job needs a worker"
        assert sorted(set(self._expected)) == self._expected, (
            f"every worker has an id that nobody had before, not {self._expected}"
        )
        assert min(launch_ns, lease_ns, grace_ns) >= 0, "no time is negative"

    @property
    def lost_workers(self) -> tuple[PeerId, ...]:
        """Workers that are gone for a reason which the launcher may still give."""
        return () if self.outcome is not None else self._absences.lost

    @property
    def members(self) -> tuple[PeerId, ...]:
        """Workers that have registered and are not gone, in the order of their ids."""
        return tuple(sorted(w for w, m in self._members.items() if not m.is_gone))

    def is_expected(self, worker: PeerId) -> bool:
        """Whether such a worker was ever asked for."""
        return worker in self._expected

    def member(self, worker: PeerId) -> JobMember | None:
        """Return what is known of a worker that has registered, gone or not."""
        return self._members.get(worker)

    @property
    def _can_recover(self) -> bool:
        """Whether the job goes on without a worker."""
        return self._restarts is not None

    @property
    def is_uneven(self) -> bool:
        """Whether a worker has no tasks while another one has several."""
        return len(set(self.placement)) < min(len(self.members), self._task_count)

    def index_of(self, worker: PeerId) -> int:
        """Return the number that people know a worker by."""
        assert worker > 0, "the coordinator is no worker"
        if worker in self.placement:
            return self.placement.index(worker)
        return worker - 1

    def handle(self, event: Event) -> list[Command]:  # noqa: C901, PLR0911, PLR0912 - one arm per event
        """Take one event and return the commands to carry out, in order."""
        if self.phase is Phase.ENDED:
            return []
        match event:
            case events.WorkerRegistered():
                return self._handle_registered(event)
            case events.WorkerReady():
                return self._handle_ready(event)
            case events.WorkerHeard(worker, now_ns):
                if worker in self._members:
                    self._members[worker].heard_ns = now_ns
                return []
            case events.WorkerFinished(worker):
                return self._handle_finished(worker)
            case events.WorkerFailed(_, report):
                return self._handle_failed(report)
            case events.WorkerLost(worker, reason):
                return self._handle_lost(worker, reason)
            case events.WorkerExited(worker, reason):
                return self._handle_exited(worker, reason)
            case events.LinkBroke():
                return self._handle_link(event)
            case events.CancelRequested(reason, now_ns):
                self._now_ns = now_ns
                return self._stop(
                    Outcome(OutcomeKind.CANCELLED, "JobCancelledError", reason)
                )
            case events.Committed():
                return self._handle_committed()
            case events.GivenUp(reason, error):
                return self._fail(error, reason)
            case events.Settled(snapshot):
                return self._handle_settled(snapshot)
            case events.PauseReached(snapshot):
                return self._handle_pause(snapshot)
            case events.StopReached(epoch):
                return self._stop(Outcome(OutcomeKind.STOPPED, "", f"epoch {epoch}"))
            case events.EpochCompleted(has_moved):
                if self._restarts is not None:
                    self._restarts.complete_epoch(self._now_ns, has_moved=has_moved)
                return []
            case events.TimePassed(now_ns):
                return self._handle_time(now_ns)
        assert_never(event)

    def validate(self) -> None:
        """Assert the invariants in the module docstring; called by every test."""
        from millstream.protocol.job_invariants import (  # noqa: PLC0415 - tests only
            check_job,
        )

        check_job(self)

    # Coming

    def _handle_registered(self, event: events.WorkerRegistered) -> list[Command]:
        is_replaced = self._can_recover and event.worker in self._exited
        is_known = event.worker in self._members
        if event.worker not in self._expected or is_known or is_replaced:
            return [SendMessage(event.worker, Stop("this worker is not expected"))]
        assert not self._is_deployed(event.worker), f"{event.worker} was not there"
        self._members[event.worker] = JobMember(event.host, event.port, event.now_ns)
        if self.phase is Phase.STOPPING:
            return [self._farewell(event.worker)]
        index = self.index_of(event.worker)
        self._tell(f"worker {index} came from {event.host}", Severity.DEBUG)
        if self.phase is Phase.RUNNING:
            self._tell(f"worker {index} gets its share of tasks at the next pause")
            return [events.RequestPause()]
        return self._deploy_if_possible()

    def _deploy_if_possible(self) -> list[Command]:
        """Deploy once it is known from where, and enough workers are there."""
        needed = 1 if self._is_recovering else self._task_count
        is_waiting = self.phase in {Phase.REGISTERING, Phase.RESOLVING_EPOCH}
        if not is_waiting or self._snapshot is None or len(self.members) < needed:
            return []
        assert self.outcome is None, f"{self.outcome.kind}, and it is deployed"
        self.phase = Phase.CONNECTING
        self._absences.clear_suspects()
        self._launch_deadline_ns = self._now_ns + self._launch_ns
        self.placement = place(self.placement, self.members, self._task_count)
        for member in self._members.values():
            member.is_ready = member.is_finished = False
        members: tuple[Member, ...] = tuple(
            (worker, self._members[worker].host, self._members[worker].port)
            for worker in self.members
        )
        deploy = Deploy(self.generation, members, self.placement, self._snapshot)
        self._tell(deployed_words(deploy))
        return self._to_members(deploy)

    def _handle_ready(self, event: events.WorkerReady) -> list[Command]:
        worker = event.worker
        if self.phase is not Phase.CONNECTING or worker not in self._members:
            return []
        self._members[worker].is_ready = True
        self._members[worker].restored = (event.restored_bytes, event.restore_ns)
        deployed = [m for w, m in self._members.items() if self._is_deployed(w)]
        assert deployed, f"generation {self.generation} connects without a task"
        if not all(member.is_ready for member in deployed):
            return []
        self.phase = Phase.RUNNING
        self._is_recovering = False
        restored = restored_words([member.restored for member in deployed])
        self._tell(f"generation {self.generation} runs{restored}")
        started = self._to_members(Start(self.generation))
        pauses = [events.RequestPause()] if self.is_uneven else []
        return [*started, events.BeginGeneration(self.generation), *pauses]

    def _is_deployed(self, worker: PeerId) -> bool:
        """Whether the worker has tasks; a spare has none and is waited for by nobody."""
        return worker in self.placement

    def _handle_pause(self, snapshot: SnapshotId) -> list[Command]:
        if self.phase is not Phase.RUNNING:
            return []
        assert self._can_recover, "a job without snapshots cannot go on from a pause"
        self.phase = Phase.RESOLVING_EPOCH
        self._tell(
            f"generation {self.generation} pauses at epoch {snapshot[1]}, tasks move to "
            "workers that have none"
        )
        self.generation += 1
        self._snapshot = snapshot
        self._is_recovering = True
        return self._deploy_if_possible()

    # Ending well

    def _handle_finished(self, worker: PeerId) -> list[Command]:
        if self.phase is not Phase.RUNNING or worker not in self._members:
            return []
        assert self.placement, "tasks that have finished were placed"
        assert self._members[worker].is_ready, f"worker {worker} has not begun"
        self._members[worker].is_finished = True
        if not all(self._members[w].is_finished for w in self.placement):
            return []
        self.phase = Phase.COMMITTING
        self._tell("all tasks have ended")
        self._absences.clear()
        return []

    def _handle_committed(self) -> list[Command]:
        if self.phase not in {Phase.COMMITTING, Phase.RUNNING}:
            return []
        assert self.outcome is None, self.outcome
        return self._stop(Outcome(OutcomeKind.SUCCEEDED))

    # Going wrong

    def _handle_failed(self, report: Failed) -> list[Command]:
        is_late = report.generation != self.generation
        assert report.generation <= self.generation, (
            f"generation {report.generation} has not begun"
        )
        if self._restarts is None or report.kind not in LASTING:
            return self._fail(report.kind, report.text, report)
        if is_late or self.phase not in {Phase.CONNECTING, Phase.RUNNING}:
            return []
        count = self._restarts.count_failure(report, self._now_ns)
        most = self._restarts.restarts_max
        if count > most:
            return self._fail(report.kind, report.text, report)
        text = f"{report.kind}, {count} of at most {most} in a row: {report.text}"
        self._tell(text, Severity.WARNING)
        # Only what is being restored can turn out to be damaged.
        is_damaged = report.kind == DAMAGE and self.phase is Phase.CONNECTING
        return self._interrupt(report.text, is_damaged=is_damaged)

    def _handle_lost(self, worker: PeerId, reason: str) -> list[Command]:
        member = self._members.get(worker)
        if member is None or member.is_gone:
            return []
        if self.phase is Phase.STOPPING:
            member.is_gone = True
            return self._end_if_everybody_left()
        if self._can_recover and self.phase is not Phase.COMMITTING:
            return self._replace(worker, reason)
        member.is_gone = True
        if self.phase is not Phase.COMMITTING:
            self._absences.lose(worker, self._now_ns, reason)
        return []

    def _handle_exited(self, worker: PeerId, reason: str) -> list[Command]:
        assert worker in self._expected, f"worker {worker} was never asked for"
        self._exited[worker] = reason
        member = self._members.get(worker)
        was_gone = member is not None and member.is_gone
        if self.phase in {Phase.STOPPING, Phase.COMMITTING}:
            if member is not None:
                member.is_gone = True
            is_over = self.phase is Phase.STOPPING
            return self._end_if_everybody_left() if is_over else []
        if self._can_recover:
            return [] if was_gone else self._replace(worker, reason)
        if member is None:
            return self._fail("LaunchError", f"a worker could not start: {reason}")
        member.is_gone = True
        return self._fail_of_loss(worker, reason)

    def _replace(self, worker: PeerId, reason: str) -> list[Command]:
        """Go on without a worker and ask for another one."""
        assert worker in self._expected, f"worker {worker} was never asked for"
        if worker in self._members:
            self._members[worker].is_gone = True
        assert self._restarts is not None, f"worker {worker} cannot be replaced"
        self._absences.clear_suspect(worker)
        lost, replacement = self._lost(worker, reason), PeerId(max(self._expected) + 1)
        assert self.phase not in {Phase.COMMITTING, Phase.STOPPING}, self.phase
        if self.placement and (
            verdict := self._restarts.count_loss(self._now_ns, what=lost)
        ):
            return self._fail("WorkerLostError", verdict)
        if not self.placement and (
            verdict := self._restarts.count_start(worker, replacement, reason)
        ):
            return self._fail("LaunchError", verdict)
        self._expected.append(replacement)
        successor = f"worker {self.index_of(replacement)} is started in its place"
        self._tell(f"{lost}; {successor}", Severity.WARNING)
        commands: list[Command] = [
            SendMessage(worker, Stop(f"it was given up: {reason}")),
            events.StartWorker(replacement),
        ]
        if self._is_deployed(worker):
            commands += self._interrupt(lost)
        return commands

    def _interrupt(self, reason: str, *, is_damaged: bool = False) -> list[Command]:
        """Leave the present generation; nothing to do if that has happened already."""
        if self.phase not in {Phase.CONNECTING, Phase.RUNNING}:
            return []
        assert self._can_recover, f"there is nothing to go back to: {reason}"
        self.phase = Phase.RESOLVING_EPOCH
        over = f"generation {self.generation} is over: {reason}"
        self._tell(over, Severity.WARNING)
        self.generation += 1
        self._snapshot = None
        self._is_recovering = True
        return [events.Interrupt(reason, is_damaged)]

    def _handle_settled(self, snapshot: SnapshotId) -> list[Command]:
        if self.phase is not Phase.RESOLVING_EPOCH:
            return []
        assert self._is_recovering, "a job that has not been interrupted is settled"
        assert self._snapshot is None, f"{self._snapshot} was settled before {snapshot}"
        self._snapshot = snapshot
        deployed = self._deploy_if_possible()
        if not deployed:
            self._tell("no worker is left; the job waits for one", Severity.WARNING)
            self.phase = Phase.REGISTERING
            self._launch_deadline_ns = self._now_ns + self._launch_ns
        return deployed

    def _handle_link(self, event: events.LinkBroke) -> list[Command]:
        is_member = event.peer in self.members or not self._can_recover
        if self.phase in {Phase.CONNECTING, Phase.RUNNING} and is_member:
            text = (
                f"the connection from worker {self.index_of(event.worker)} to worker "
                f"{self.index_of(event.peer)} broke: {event.reason}"
            )
            self._absences.suspect(event.peer, event.now_ns, text)
            self._tell(text, Severity.WARNING)
        return []

    def _handle_time(self, now_ns: int) -> list[Command]:
        assert now_ns >= self._now_ns, f"it was {self._now_ns}, and now is {now_ns}"
        self._now_ns = now_ns
        if self.phase is Phase.STOPPING:
            return self._end_if_everybody_left()
        if self.phase in {Phase.REGISTERING, Phase.CONNECTING} and (
            now_ns > self._launch_deadline_ns
        ):
            return self._handle_late()
        return self._handle_absence(now_ns)

    def _handle_late(self) -> list[Command]:
        """Replace those who do not get ready; before the first start, fail."""
        assert self.phase in {Phase.REGISTERING, Phase.CONNECTING}, self.phase
        late = [
            worker
            for worker in self.placement
            if not self._members[worker].is_ready and self.phase is Phase.CONNECTING
        ]
        if not self._is_recovering or not late:
            return self._fail("LaunchError", self._late())
        return self._replace(late[0], "it did not get ready in time")

    def _handle_absence(self, now_ns: int) -> list[Command]:
        """Act on a worker that is lost, cut off or silent for too long."""
        assert self.outcome is None, "nobody is missed in a job that is over"
        if (lost := self._absences.due_loss(now_ns)) is not None:
            return self._fail_of_loss(*lost)
        if (suspect := self._absences.due_suspect(now_ns)) is not None:
            return self._handle_suspect(*suspect)
        for worker, member in self._members.items():
            silent_ns = now_ns - member.heard_ns
            is_missed = not member.is_gone and worker not in self._absences.lost
            if silent_ns > self._lease_ns and is_missed:
                reason = f"it was silent for {silent_ns / 1e9:.1f} s"
                if not self._can_recover:
                    return self._fail_of_loss(worker, reason)
                if self.phase is not Phase.COMMITTING:
                    return self._replace(worker, reason)
        return []

    def _handle_suspect(self, worker: PeerId, text: str) -> list[Command]:
        """Go back for a link that broke; give its far end up if it breaks again."""
        if not self._can_recover:
            return self._fail("TransportError", text)
        self._absences.clear_suspect(worker)
        if self.phase is Phase.CONNECTING:
            return self._replace(worker, text)
        assert self._restarts is not None
        if self.phase is Phase.RUNNING and (
            verdict := self._restarts.count_loss(self._now_ns, what=text)
        ):
            return self._fail("TransportError", verdict)
        return self._interrupt(text)

    def _late(self) -> str:
        count, wanted = len(self.members), self._task_count
        assert count < wanted or self.phase is Phase.CONNECTING, "all workers came"
        if self.phase is Phase.CONNECTING:
            ready = sum(member.is_ready for member in self._members.values())
            return unconnected_words(ready, wanted, self._launch_ns)
        wanted = count + 1 if self._is_recovering else wanted
        return unregistered_words(count, wanted, self._launch_ns)

    def _lost(self, worker: PeerId, reason: str) -> str:
        return f"worker {self.index_of(worker)} was lost: {reason}"

    def _fail_of_loss(self, worker: PeerId, reason: str) -> list[Command]:
        assert not self._can_recover, f"worker {worker} can be replaced: {reason}"
        return self._fail("WorkerLostError", loss_words(self._lost(worker, reason)))

    def _fail(
        self, error: str, reason: str, report: Failed | None = None
    ) -> list[Command]:
        assert error, f"a job fails with an error of its own: {reason}"
        return self._stop(Outcome(OutcomeKind.FAILED, error, reason, report))

    # Leaving

    def _stop(self, outcome: Outcome) -> list[Command]:
        """Fix the outcome; the first one counts."""
        if self.outcome is not None:
            return []
        has_error = outcome.kind in {OutcomeKind.FAILED, OutcomeKind.CANCELLED}
        assert has_error == bool(outcome.error), outcome
        self.outcome = outcome
        self.phase = Phase.STOPPING
        self._tell(*outcome_words(outcome))
        self._stop_deadline_ns = self._now_ns + self._grace_ns
        commands = [self._farewell(worker) for worker in self.members]
        return commands + self._end_if_everybody_left()

    def _farewell(self, worker: PeerId) -> Command:
        assert self.outcome is not None
        if self.outcome.kind is OutcomeKind.SUCCEEDED:
            return SendMessage(worker, Release())
        return SendMessage(worker, Stop(self.outcome.reason))

    def _end_if_everybody_left(self) -> list[Command]:
        assert self.outcome is not None
        assert self.phase is Phase.STOPPING, f"it ended while {self.phase.name}"
        is_everybody_gone = all(
            worker in self._exited
            or (worker in self._members and self._members[worker].is_gone)
            for worker in self._expected
        )
        if not is_everybody_gone and self._now_ns < self._stop_deadline_ns:
            return []
        self.phase = Phase.ENDED
        if not is_everybody_gone:
            self._tell(unreleased_words(self._grace_ns), Severity.WARNING)
        return []

    def _to_members(self, message: Message) -> list[Command]:
        return [SendMessage(worker, message) for worker in self.members]

    def _tell(self, text: str, severity: Severity = Severity.INFO) -> None:
        self.story.add(self._now_ns, "job", text, severity)
