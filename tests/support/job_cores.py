"""A `JobCore` of two workers in any phase, for tests of what it decides."""

from __future__ import annotations

from millstream.protocol.ids import PeerId
from millstream.protocol.job import JobCore, Phase
from millstream.protocol.job_events import (
    Command,
    Committed,
    Event,
    Outcome,
    SendMessage,
    TimePassed,
    WorkerFinished,
    WorkerReady,
    WorkerRegistered,
)
from millstream.protocol.messages import Deploy, Failed, Release, Start, Stop

__all__ = [
    "ONE",
    "REPORT",
    "SECOND_NS",
    "STRANGER",
    "TWO",
    "Driver",
    "committing",
    "connecting",
    "gathering",
    "registered",
    "running",
    "stopping",
    "to_both",
]

SECOND_NS = 1_000_000_000
ONE, TWO, STRANGER = PeerId(1), PeerId(2), PeerId(9)


class Driver:
    """A job of two workers that is checked after every event."""

    def __init__(self, restarts_max: int | None = None) -> None:
        self.core = JobCore(
            [ONE, TWO],
            now_ns=0,
            launch_ns=10 * SECOND_NS,
            lease_ns=6 * SECOND_NS,
            grace_ns=5 * SECOND_NS,
            restarts_max=restarts_max,
        )

    def tell(self, *events: Event) -> list[Command]:
        """Return the commands that follow from the events."""
        commands = []
        for event in events:
            commands += self.core.handle(event)
            self.core.validate()
        return commands

    def at(self, seconds: float) -> list[Command]:
        return self.tell(TimePassed(round(seconds * SECOND_NS)))

    def phase(self) -> Phase:
        return self.core.phase

    @property
    def outcome(self) -> Outcome:
        assert self.core.outcome is not None
        return self.core.outcome


def gathering() -> Driver:
    return Driver()


def connecting() -> Driver:
    driver = Driver()
    driver.tell(registered(ONE), registered(TWO))
    return driver


def running() -> Driver:
    driver = connecting()
    driver.tell(WorkerReady(ONE), WorkerReady(TWO))
    return driver


def committing() -> Driver:
    driver = running()
    driver.tell(WorkerFinished(ONE), WorkerFinished(TWO))
    return driver


def stopping() -> Driver:
    driver = committing()
    driver.tell(Committed())
    return driver


def registered(worker: PeerId, now_ns: int = 0) -> WorkerRegistered:
    return WorkerRegistered(worker, f"host-{worker}", 7000 + worker, now_ns)


def to_both(message: Stop | Release | Start | Deploy) -> list[Command]:
    return [SendMessage(ONE, message), SendMessage(TWO, message)]


REPORT = Failed(ONE, 1, "OperatorError", "map raised", "map", "", "", "", b"")
