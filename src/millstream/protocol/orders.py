"""What a coordinator may tell a worker, from what it has told it before.

A message that decodes can still make no sense: a generation that was never deployed, tasks
on a worker that is no member, an epoch that went by.  `Orders.take` finds that before
anything is done about it, and says of all others whether they are for the present
generation.  It does not know what tasks do with an order, nor how one arrives.

Theory of operation
-------------------
Orders of one coordinator arrive in the order in which it gave them.  Generations count up;
what is for an older one came too late, and is no mistake.  A worker that has not been
deployed yet hears of epochs that are the business of others, which is none either.  Within
a generation epochs count up from that of its snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import barrier_from_wire
from millstream.protocol.ids import COORDINATOR
from millstream.protocol.messages import (
    Compact,
    CompleteEpoch,
    Deploy,
    Heartbeat,
    Message,
    OpenEpoch,
    Release,
    Resume,
    Start,
    Stop,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.ids import PeerId
    from millstream.protocol.messages import BarrierForm, Member, SnapshotId

__all__ = ["PORT_MAX", "Orders"]

PORT_MAX = 0xFFFF
"""The highest number of a TCP port."""

_NOWHERE = (0, 0)


class Orders:
    """The orders of one worker.

    Parameters
    ----------
    worker
        Who takes them.
    task_count
        How many task indexes there are.
    stages
        The stages of the job.
    has_store
        Whether snapshots can be read.

    Examples
    --------
    >>> orders = Orders(1, task_count=1, stages=[0], has_store=False)
    >>> orders.take(Deploy(3, ((1, "host", 7),), (1,), (0, 0)))
    True
    >>> orders.take(Start(2)), orders.take(Start(3))
    (False, True)
    """

    def __init__(
        self,
        worker: PeerId,
        *,
        task_count: int,
        stages: Iterable[int],
        has_store: bool,
    ) -> None:
        assert worker > COORDINATOR, f"peer {worker} is no worker"
        assert task_count > 0, f"{task_count} task indexes are placed nowhere"
        self._worker = worker
        self._task_count = task_count
        self._stages = frozenset(stages)
        assert self._stages, "a job without stages has nobody to order about"
        self._has_store = has_store
        self._generation = 0
        #: The last epoch that is complete, and the last one that was opened.
        self._complete = self._opened = 0

    def validate(self) -> None:
        """Assert that no epoch is complete before it was opened; called by every test."""
        assert 0 <= self._complete <= self._opened, (
            f"epoch {self._complete} is complete, {self._opened} was opened last"
        )
        assert self._generation > 0 or self._opened == 0, (
            f"epoch {self._opened} was opened, and nothing was deployed"
        )

    def take(self, message: Message) -> bool:
        """Return whether an order is to be carried out now.

        Raises
        ------
        RemoteProtocolError
            If no coordinator can have meant it.
        """
        match message:
            case Stop() | Release():
                return True
            case Heartbeat(worker):
                _expect(worker == COORDINATOR, f"it calls itself peer {worker}")
                return True
            case Deploy():
                self._take_deploy(message)
                return True
            case Start() | OpenEpoch() | CompleteEpoch() | Resume() | Compact():
                is_present = self._is_present(message.generation)
                if is_present:
                    self._take_present(message)
                return is_present
        msg = "a coordinator does not say this"
        raise RemoteProtocolError(msg)

    def _is_present(self, generation: int) -> bool:
        """Whether an order is for the tasks that are here, and not for earlier ones."""
        _expect(generation > 0, f"there is no generation {generation}")
        if not self._generation:
            return False
        _expect(
            generation <= self._generation,
            f"generation {generation} has not been deployed, only {self._generation}",
        )
        return generation == self._generation

    def _take_deploy(self, deploy: Deploy) -> None:
        _expect(
            deploy.generation > self._generation,
            f"generation {deploy.generation} does not follow {self._generation}",
        )
        self._check_members(deploy.members)
        members = {worker for worker, _, _ in deploy.members}
        _expect(
            len(deploy.placement) == self._task_count,
            f"{len(deploy.placement)} of {self._task_count} task indexes are placed",
        )
        strangers = set(deploy.placement) - members
        assert self._worker in members, f"worker {self._worker} is not among {members}"
        _expect(not strangers, f"tasks are placed on {strangers}, who are no members")
        self._check_snapshot(deploy.snapshot)
        self._generation = deploy.generation
        self._complete = self._opened = deploy.snapshot[1]

    def _check_members(self, members: tuple[Member, ...]) -> None:
        ids = [worker for worker, _, _ in members]
        is_sane = len(set(ids)) == len(ids) and min(ids, default=0) > COORDINATOR
        _expect(is_sane, f"workers {ids} cannot be the members of a generation")
        _expect(self._worker in ids, f"worker {self._worker} is not among {ids}")
        for worker, _, port in members:
            _expect(0 <= port <= PORT_MAX, f"worker {worker} cannot have port {port}")

    def _check_snapshot(self, snapshot: SnapshotId) -> None:
        claim, epoch = snapshot
        can_be = min(claim, epoch) >= 0 and (snapshot == _NOWHERE or self._has_store)
        _expect(can_be, f"no snapshot is epoch {epoch} of claim {claim} here")

    def _take_present(
        self, message: Start | OpenEpoch | CompleteEpoch | Resume | Compact
    ) -> None:
        assert message.generation == self._generation, f"{message} is of another one"
        match message:
            case OpenEpoch(_, wire):
                self._take_announced(wire)
            case CompleteEpoch(_, epoch):
                _expect(
                    epoch > self._complete,
                    f"epoch {epoch} cannot be complete after {self._complete}",
                )
                self._complete, self._opened = epoch, max(epoch, self._opened)
            case Resume(_, epoch):
                # An epoch that no source has to hear of is opened without a word.
                _expect(epoch > 0, f"nobody pauses at epoch {epoch}")
            case Compact(_, snapshot, stages):
                self._check_snapshot(snapshot)
                unknown = set(stages) - self._stages
                _expect(
                    not unknown and self._has_store, f"no stages {unknown} to merge"
                )
        assert self._complete <= self._opened, f"{message} completes what is not open"

    def _take_announced(self, wire: BarrierForm) -> None:
        assert self._generation > 0, f"{wire} is opened, and nothing is deployed"
        barrier = barrier_from_wire(wire)
        _expect(
            barrier.epoch > self._opened,
            f"epoch {barrier.epoch} cannot be opened after {self._opened}",
        )
        _expect(
            barrier.since in {0, self._complete},
            f"a delta cannot build on epoch {barrier.since}, the last complete one is "
            f"{self._complete}",
        )
        self._opened = barrier.epoch


def _expect(can_be: bool, otherwise: str) -> None:  # noqa: FBT001 - a condition
    if not can_be:
        raise RemoteProtocolError(otherwise)
