"""A `SnapshotCore` of two tasks in any phase, for tests of what it decides."""

from __future__ import annotations

from dataclasses import replace

from millstream.protocol.barrier import Barrier, Order
from millstream.protocol.ids import Epoch
from millstream.protocol.messages import Ended, Offset, Sealed
from millstream.protocol.snapshot_events import (
    Command,
    Committed,
    Event,
    Started,
    Stored,
    TaskEnded,
    TaskId,
    TaskSealed,
    TimePassed,
)
from millstream.protocol.snapshots import Phase, SnapshotCore

__all__ = [
    "INTERVAL",
    "ONE",
    "RETRY",
    "TIMEOUT",
    "TWO",
    "Driver",
    "barrier",
    "committing",
    "opened",
    "storing",
    "waiting",
]

INTERVAL, TIMEOUT, RETRY = 100, 50, 10
ONE, TWO = (0, 0), (1, 0)


class Driver:
    """The snapshots of a job of two tasks, checked after every event."""

    def __init__(
        self,
        *,
        epoch: int = 0,
        interval_ns: int | None = INTERVAL,
        is_synchronous: bool = False,
    ) -> None:
        self.generation = 1
        self.core = SnapshotCore(
            epoch=Epoch(epoch),
            last_used=epoch,
            interval_ns=interval_ns,
            timeout_ns=TIMEOUT,
            retry_ns=RETRY,
            is_synchronous=is_synchronous,
        )

    def tell(self, *events: Event) -> list[Command]:
        """Return the commands that follow from the events."""
        commands = []
        for event in events:
            commands += self.core.handle(event)
            self.core.validate()
        return commands

    def start(self, *ended: TaskId, now_ns: int = 0) -> list[Command]:
        tasks = frozenset({ONE, TWO})
        return self.tell(Started(self.generation, tasks, frozenset(ended), now_ns))

    def at(self, now_ns: int) -> list[Command]:
        return self.tell(TimePassed(now_ns))

    def complete(self, epoch: int, *offsets: Offset) -> list[Command]:
        """Let an epoch be sealed and stored, with how far the first task has read."""
        self.at(epoch * INTERVAL)
        first = replace(self.sealed(epoch, ONE), offsets=offsets)
        self.tell(TaskSealed(first), TaskSealed(self.sealed(epoch, TWO)))
        announced = self.tell(Stored(epoch))
        self.tell(Committed(epoch))
        return announced

    def seal(self, epoch: int, *tasks: TaskId, problem: str = "") -> list[Command]:
        return self.tell(*(TaskSealed(self.sealed(epoch, t, problem)) for t in tasks))

    def sealed(self, epoch: int, task: TaskId, problem: str = "") -> Sealed:
        row = (("write", f"{epoch} of {task}".encode()),)
        return Sealed(1, self.generation, epoch, *task, None, (), row, 0, problem)

    def end(self, task: TaskId, epoch: int = 0) -> list[Command]:
        return self.tell(TaskEnded(self.ended(task, epoch)))

    def ended(self, task: TaskId, epoch: int = 0) -> Ended:
        row = (("write", f"end of {task}".encode()),)
        return Ended(1, self.generation, epoch, *task, (), row)

    def abandoned(self) -> list[str]:
        """Return the epochs that were given up, and why, as the story has it."""
        texts = [decision.text for decision in self.core.story.entries()]
        return [text for text in texts if " is abandoned: " in text]

    def phase(self) -> Phase:
        return self.core.phase


def waiting() -> Driver:
    driver = Driver()
    driver.start()
    return driver


def opened() -> Driver:
    driver = waiting()
    driver.at(INTERVAL)
    return driver


def storing() -> Driver:
    driver = opened()
    driver.seal(1, ONE, TWO)
    return driver


def committing() -> Driver:
    driver = storing()
    driver.tell(Stored(1))
    return driver


def barrier(epoch: int, *orders: Order, since: int = 0) -> Barrier:
    return Barrier(Epoch(epoch), Epoch(since), (Order.SNAPSHOT, *orders))
