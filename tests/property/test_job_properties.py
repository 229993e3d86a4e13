"""JobCore: whatever happens in whatever order, a job ends once and says why once.

Method: Hypothesis draws a sequence of events, sensible or not: workers register, get
ready, finish, fail, vanish and exit, links break, time passes, somebody cancels.  The
shell is modelled only where it must react: it answers `CommitOutput`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.ids import PeerId
from millstream.protocol.job import (
    CancelRequested,
    Command,
    CommitFailed,
    CommitOutput,
    Committed,
    EndJob,
    Event,
    JobCore,
    LinkBroke,
    Outcome,
    OutcomeKind,
    Phase,
    SendMessage,
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

SECOND_NS = 1_000_000_000
ORDER = list(Phase)


@dataclass
class Model:
    """A coordinator's shell around the core, with a clock that the test moves."""

    worker_count: int
    commit_works: bool
    now_ns: int = 0
    sent: list[SendMessage] = field(default_factory=list)
    ends: list[Outcome] = field(default_factory=list)
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
        for command in commands:
            self.carry_out(command)

    def carry_out(self, command: Command) -> None:
        match command:
            case SendMessage():
                self.sent.append(command)
            case EndJob(outcome):
                self.ends.append(outcome)
            case CommitOutput():
                self.commits += 1
                self.tell(Committed() if self.commit_works else CommitFailed("full"))

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
