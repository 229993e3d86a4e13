"""JobCore: whatever happens in whatever order, a job ends once and says why once.

Method: Hypothesis draws a sequence of events, sensible or not: workers register, get
ready, finish, fail, vanish and exit, links break, time passes, somebody cancels.  The
shell is modelled only where it must react: it commits the output when all tasks have ended.

A job with snapshots has a model of its own, in which only what can happen does: workers
die at any moment, and the shell answers when it likes.  In the end everything heals.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.ids import PeerId
from millstream.protocol.job import JobCore, Phase
from millstream.protocol.job_events import (
    BeginGeneration,
    CancelRequested,
    Command,
    Committed,
    EpochCompleted,
    Event,
    GivenUp,
    Interrupt,
    LinkBroke,
    Outcome,
    OutcomeKind,
    PauseReached,
    RequestPause,
    SendMessage,
    Settled,
    StartWorker,
    TimePassed,
    WorkerExited,
    WorkerFailed,
    WorkerFinished,
    WorkerHeard,
    WorkerLost,
    WorkerReady,
    WorkerRegistered,
)
from millstream.protocol.messages import Deploy, Failed, Release, Start, Stop
from millstream.protocol.restarts import CALM_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Callable

    Happening = Callable[[st.DataObject], None]

SECOND_NS = 1_000_000_000
ORDER = list(Phase)


@dataclass
class Model:
    """A coordinator's shell around the core, with a clock that the test moves."""

    worker_count: int
    commit_works: bool
    now_ns: int = 0
    sent: list[SendMessage] = field(default_factory=list)
    ends: list[Outcome | None] = field(default_factory=list)
    commits: int = 0

    def __post_init__(self) -> None:
        self.workers = [PeerId(1 + i) for i in range(self.worker_count)]
        self.core = JobCore(
            self.workers,
            now_ns=0,
            launch_ns=60 * SECOND_NS,
            lease_ns=6 * SECOND_NS,
            grace_ns=5 * SECOND_NS,
        )

    def tell(self, event: Event) -> None:
        outcome, phase = self.core.outcome, self.core.phase
        commands = self.core.handle(event)
        self.core.validate()
        assert outcome in (None, self.core.outcome), "an outcome never changes"
        assert ORDER.index(phase) <= ORDER.index(self.core.phase), "no way back"
        self.sent += [c for c in commands if isinstance(c, SendMessage)]
        if phase is not self.core.phase is Phase.ENDED:
            self.ends.append(self.core.outcome)
        if phase is not self.core.phase is Phase.COMMITTING:
            self.commits += 1
            given_up = GivenUp("full", "OperationalError")
            self.tell(Committed() if self.commit_works else given_up)

    def received(self, worker: PeerId, kind: type[object]) -> int:
        return sum(
            s.worker == worker and isinstance(s.message, kind) for s in self.sent
        )


def failure(worker: PeerId) -> Failed:
    return Failed(worker, 1, "OperatorError", "map raised", "map", "", "", "", b"")


@st.composite
def histories(draw: st.DrawFn) -> tuple[Model, list[tuple[str, int, int]]]:
    model = Model(draw(st.integers(1, 3)), draw(st.booleans()))
    usual = ["register", "ready", "finish"]
    kinds = [*usual, *usual, "heard", "fail", "lose", "exit", "link", "time", "cancel"]
    who = st.integers(0, model.worker_count - 1)
    step = st.tuples(st.sampled_from(kinds), who, who)
    start = [("register", i, 0) for i in range(model.worker_count)]
    return model, draw(st.sampled_from([[], start])) + draw(st.lists(step, max_size=25))


def play(model: Model, kind: str, who: int, other: int) -> None:
    worker, peer = model.workers[who], model.workers[other]
    now_ns = model.now_ns
    events: dict[str, Event] = {
        "register": WorkerRegistered(worker, "host", 1, now_ns),
        "ready": WorkerReady(worker),
        "finish": WorkerFinished(worker),
        "heard": WorkerHeard(worker, now_ns),
        "fail": WorkerFailed(worker, failure(worker)),
        "lose": WorkerLost(worker, "reset by peer"),
        "exit": WorkerExited(worker, "exit code 1"),
        "link": LinkBroke(worker, peer, "reset by peer", now_ns),
        "time": TimePassed(now_ns),
        "cancel": CancelRequested("enough", now_ns),
    }
    model.tell(events[kind])


@given(histories())
def test_job_ends_exactly_once_after_everybody_left(
    history: tuple[Model, list[tuple[str, int, int]]],
) -> None:
    """No order of events leaves a job hanging or gives it two outcomes."""
    model, steps = history
    for kind, who, other in steps:
        model.now_ns += SECOND_NS // 4
        play(model, kind, who, other)
    for worker in model.workers:
        model.tell(WorkerExited(worker, "exit code 0"))
    model.now_ns += 3600 * SECOND_NS
    model.tell(TimePassed(model.now_ns))

    assert model.core.phase is Phase.ENDED
    assert model.ends == [model.core.outcome]


@given(histories())
def test_success_means_that_every_worker_finished_and_the_output_is_visible(
    history: tuple[Model, list[tuple[str, int, int]]],
) -> None:
    """A job never succeeds by accident."""
    model, steps = history
    finished = set()
    for kind, who, other in steps:
        if kind == "finish" and model.core.phase is Phase.RUNNING:
            finished.add(who)
        play(model, kind, who, other)

    outcome = model.core.outcome
    is_success = outcome is not None and outcome.kind is OutcomeKind.SUCCEEDED
    assert is_success <= (len(finished) == model.worker_count)
    assert is_success <= (model.commits == 1 and model.commit_works)
    assert model.commits <= 1


@given(histories())
def test_worker_is_deployed_and_started_once_and_told_to_leave_one_way(
    history: tuple[Model, list[tuple[str, int, int]]],
) -> None:
    """Nobody is started before all are ready, nor released from a failed job."""
    model, steps = history
    for kind, who, other in steps:
        if kind == "register" and model.workers[who] in registered(model):
            continue  # a second registration is refused, which a test by hand shows
        play(model, kind, who, other)

    for worker in model.workers:
        deployed = model.received(worker, Deploy)
        assert model.received(worker, Start) <= deployed <= 1
        assert model.received(worker, Release) + model.received(worker, Stop) <= 1
    released = any(model.received(worker, Release) for worker in model.workers)
    assert not released or model.core.outcome == Outcome(OutcomeKind.SUCCEEDED)


def registered(model: Model) -> set[PeerId]:
    return set(model.core._members)


# Recovery.


class Shell:
    """The shell of a job with snapshots, its launcher and its workers."""

    def __init__(self, worker_count: int) -> None:
        self.task_count = worker_count
        self.now_ns = 0
        self.core = JobCore(
            [PeerId(1 + i) for i in range(worker_count)],
            now_ns=0,
            launch_ns=3600 * SECOND_NS,
            lease_ns=6 * SECOND_NS,
            grace_ns=5 * SECOND_NS,
            restarts_max=2,
        )
        self.starting = [PeerId(1 + i) for i in range(worker_count)]
        self.known = set(self.starting)
        self.alive: set[PeerId] = set()
        self.generation_of: dict[PeerId, int] = {}
        self.snapshot = (0, 0)
        self.interruptions = self.failures = self.losses = self.damages = 0
        self.is_settling = self.is_damaged = self.is_pause_wanted = False
        self.begun = 0
        while self.core.phase is not Phase.RUNNING:
            self.heal()

    def tell(self, event: Event) -> None:
        generation, interruptions = self.core.generation, self.interruptions
        commands = self.core.handle(event)
        self.core.validate()
        for command in commands:
            self.carry_out(command)
        assert self.core.generation >= generation
        is_interrupted = self.interruptions > interruptions
        assert not is_interrupted or self.core.generation > generation

    def carry_out(self, command: Command) -> None:
        match command:
            case SendMessage(worker, Deploy() as message):
                self.check_deploy(worker, message)
                self.generation_of[worker] = message.generation
            case SendMessage(worker, Stop() | Release()):
                self.alive.discard(worker)
            case Interrupt(_, is_damaged):
                self.interruptions += 1
                assert not self.is_settling, "one at a time"
                assert is_damaged == self.is_damaged
                self.is_settling = True
            case RequestPause():
                self.is_pause_wanted = True
            case StartWorker(worker):
                assert worker not in self.known, "an id belongs to one incarnation"
                self.known.add(worker)
                self.starting.append(worker)
            case BeginGeneration(generation):
                assert generation == self.core.generation > self.begun, "each once"
                assert self.core.phase is Phase.RUNNING
                self.begun = generation

    def check_deploy(self, worker: PeerId, message: Deploy) -> None:
        members = {member for member, _, _ in message.members}
        assert worker in members == self.alive, "everybody who lives, and nobody else"
        assert len(message.placement) == self.task_count
        assert set(message.placement) <= members
        loads = [message.placement.count(member) for member in members]
        assert max(loads) - min(loads) <= 1
        assert message.generation == self.core.generation
        assert message.generation > self.generation_of.get(worker, 0)
        assert message.snapshot == self.snapshot

    def phase(self) -> Phase:
        return self.core.phase

    def how_it_ended(self) -> Outcome | None:
        return self.core.outcome

    @property
    def current(self) -> list[PeerId]:
        """Workers that were deployed in the present generation."""
        generation = self.core.generation
        return [
            w for w in sorted(self.alive) if self.generation_of.get(w) == generation
        ]

    # What can happen

    def choices(self) -> list[Happening]:
        is_connecting = self.core.phase is Phase.CONNECTING
        is_running = self.core.phase is Phase.RUNNING
        can_lose = bool(self.alive) and self.losses < LOSSES_MAX
        chances: list[tuple[int, Happening, bool]] = [
            (3, self.register, bool(self.starting)),
            (4, self.get_ready, is_connecting and bool(self.current)),
            (3, self.settle, self.is_settling),
            (2, self.pause, is_running and self.is_pause_wanted),
            (1, self.finish, is_running and bool(self.current)),
            (1, self.lose, can_lose),
            (1, self.exit, can_lose or bool(self.starting)),
            (1, self.fail, bool(self.current)),
            (1, self.find_damage, is_connecting and self.can_find_damage),
            (1, self.break_link, can_lose and len(self.current) > 1),
            (1, self.complete_epoch, is_running),
            (2, self.pass_time, True),
        ]
        return [happen for weight, happen, can in chances if can for _ in range(weight)]

    def register(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.starting))
        self.starting.remove(worker)
        self.alive.add(worker)
        self.tell(WorkerRegistered(worker, "host", 7, self.now_ns))

    def get_ready(self, data: st.DataObject) -> None:
        self.tell(WorkerReady(data.draw(st.sampled_from(self.current))))

    def settle(self, _data: st.DataObject | None = None) -> None:
        change = -1 if self.is_damaged else self.interruptions % 2
        self.is_settling = self.is_damaged = False
        self.snapshot = (1, self.snapshot[1] + change)
        self.tell(Settled(self.snapshot))

    def pause(self, _data: st.DataObject | None = None) -> None:
        self.is_pause_wanted = False
        self.snapshot = (1, self.snapshot[1] + 1)
        generation = self.core.generation
        self.tell(PauseReached(self.snapshot))
        assert self.core.generation == generation + 1

    def finish(self, data: st.DataObject) -> None:
        self.tell(WorkerFinished(data.draw(st.sampled_from(self.current))))

    def lose(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(worker)
        self.losses += 1
        self.tell(WorkerLost(worker, "reset by peer"))

    def exit(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted({*self.alive, *self.starting})))
        self.alive.discard(worker)
        if worker in self.starting:
            self.starting.remove(worker)
        self.losses += 1
        self.tell(WorkerExited(worker, "killed by signal 9"))

    def fail(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.current))
        self.failures += 1
        report = Failed(
            worker, self.core.generation, "OperatorError", "map raised", "map",
            f"job.py:{self.failures}", "", "", b"",
        )  # fmt: skip
        self.tell(WorkerFailed(worker, report))

    @property
    def can_find_damage(self) -> bool:
        """Whether there is a worker to find it, and an older snapshot to go back to."""
        is_rare = self.damages < DAMAGES_MAX
        return bool(self.current) and self.snapshot[1] > 1 and is_rare

    def find_damage(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.current))
        self.damages += 1
        self.is_damaged = True
        report = Failed(
            worker, self.core.generation, "SnapshotDamagedError", "a file is missing",
            "", "", "", "", b"",
        )  # fmt: skip
        self.tell(WorkerFailed(worker, report))
        assert self.is_settling

    def break_link(self, data: st.DataObject) -> None:
        worker, peer = data.draw(st.permutations(self.current))[:2]
        self.losses += 1
        self.tell(LinkBroke(worker, peer, "reset by peer", self.now_ns))

    def complete_epoch(self, data: st.DataObject) -> None:
        self.tell(EpochCompleted(has_moved=data.draw(st.booleans())))

    def pass_time(self, data: st.DataObject) -> None:
        self.wait(data.draw(st.sampled_from([SECOND_NS // 4, 2 * SECOND_NS])))

    def wait(self, duration_ns: int) -> None:
        self.now_ns += duration_ns
        for worker in sorted(self.alive):
            self.tell(WorkerHeard(worker, self.now_ns))
        self.tell(TimePassed(self.now_ns))

    # Healing

    def heal(self) -> None:
        """Let everything go well for a while."""
        while self.starting:
            worker = self.starting.pop()
            self.alive.add(worker)
            self.tell(WorkerRegistered(worker, "host", 7, self.now_ns))
        if self.is_settling:
            self.settle()
        for worker in self.current:
            self.tell(WorkerReady(worker))
        if self.is_pause_wanted and self.core.phase is Phase.RUNNING:
            self.pause()
        self.wait(SECOND_NS // 4)

    def conclude(self) -> None:
        """Let all tasks end and the output be committed, then everybody leave."""
        for worker in self.current:
            self.tell(WorkerFinished(worker))
        if self.core.phase is Phase.COMMITTING:
            leaving = sorted(self.alive)
            self.tell(Committed())
            for worker in leaving:
                self.tell(WorkerLost(worker, "it disconnected"))
        self.wait(6 * SECOND_NS)


LOSSES_MAX = 15
DAMAGES_MAX = 2
"""More in a row end a job on purpose."""


@given(st.integers(1, 4), st.integers(0, 60), st.data())
def test_job_with_snapshots_survives_losses_links_and_failures(
    worker_count: int, steps: int, data: st.DataObject
) -> None:
    """Tasks are always placed on the living, and in the end the job succeeds."""
    shell = Shell(worker_count)
    for _ in range(steps):
        if shell.core.phase is not Phase.COMMITTING:
            data.draw(st.sampled_from(shell.choices()))(data)
    assert shell.core.outcome is None

    for _ in range(30):
        shell.heal()
    assert shell.phase() in {Phase.RUNNING, Phase.COMMITTING}
    shell.conclude()

    assert shell.phase() is Phase.ENDED
    assert shell.how_it_ended() == Outcome(OutcomeKind.SUCCEEDED)


@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 7), st.booleans())))
def test_same_failure_ends_the_job_after_as_many_tries_as_it_has(
    worker_count: int, epochs_between: list[tuple[int, bool]]
) -> None:
    """Unless there are enough complete epochs with progress between two of them."""
    shell, tries = Shell(worker_count), 0
    for epochs, has_moved in epochs_between:
        shell.tell(WorkerFailed(PeerId(1), _same(shell)))
        tries += 1
        assert (shell.core.outcome is not None) == (tries > 2)
        if tries > 2:
            break
        for _ in range(3):
            shell.heal()
        for _ in range(epochs):
            shell.tell(EpochCompleted(has_moved))
        tries *= epochs < CALM_EPOCHS or not has_moved


@given(st.integers(1, 2), st.integers(1, 4), st.integers(0, CALM_EPOCHS - 1))
def test_failures_that_take_turns_end_the_job(
    worker_count: int, places: int, epochs: int
) -> None:
    """Two records in two splits: whichever comes first, none is passed."""
    shell = Shell(worker_count)
    for turn in range(2 * places):
        place = replace(_same(shell), location=f"job.py:{turn % places}")
        shell.tell(WorkerFailed(PeerId(1), place))
        assert shell.core.outcome is None
        for _ in range(3):
            shell.heal()
        for _ in range(epochs):
            shell.tell(EpochCompleted(has_moved=True))

    shell.tell(WorkerFailed(PeerId(1), replace(_same(shell), location="job.py:0")))
    assert shell.core.outcome is not None


def _same(shell: Shell) -> Failed:
    generation = shell.core.generation
    return Failed(1, generation, "OperatorError", "map raised", "map", "", "", "", b"")


@given(st.integers(1, 3), st.integers(0, CALM_EPOCHS - 1))
def test_losses_without_end_end_the_job(worker_count: int, epochs: int) -> None:
    """A record that kills every worker is not read for ever, whatever comes before it."""
    shell = Shell(worker_count)
    for _ in range(21):
        assert shell.core.outcome is None
        shell.heal()
        for _ in range(epochs):
            shell.tell(EpochCompleted(has_moved=True))
        lost = max(shell.alive)
        shell.alive.discard(lost)
        shell.tell(WorkerLost(lost, "killed"))

    outcome = shell.core.outcome
    assert outcome is not None
    assert outcome.error == "WorkerLostError"
    assert "after 20 others without 5 snapshots in a row between" in outcome.reason
