"""One start of the driver with its network and its workers, as the simulator holds them.

A driver that is started again is another site: it has a network of its own, and ids
begin anew.  What is left of the site before it only shares the disk and the sinks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.protocol.ids import COORDINATOR
from millstream.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.ids import PeerId
    from millstream.runtime.coordinator import Coordinator
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.checkers import BufferChecker
    from millstream.simulation.core_checker import CoreChecker
    from millstream.simulation.disk import Deferred
    from millstream.simulation.network import SimulatedNetwork

__all__ = ["Node", "Site", "ready_nodes"]


@dataclass(slots=True, eq=False)
class Node:
    """A peer and when it wants its next turn."""

    peer: PeerId
    actor: Worker | Coordinator
    background: Deferred
    is_busy: bool = True
    wake_ns: int = 0
    frozen_until_ns: int = 0

    def wants_ns(self, woken: set[PeerId]) -> int:
        """Return when it can have a turn."""
        if self.is_busy or self.peer in woken:
            return self.frozen_until_ns
        return max(self.frozen_until_ns, self.wake_ns)


@dataclass(slots=True, eq=False)
class Site:
    """A driver and those that it has started.

    Attributes
    ----------
    began_ns
        When the driver was started.
    launches
        When which worker's process will be there.
    exit_notices
        What the launcher will say, and when, about processes that ended.
    """

    number: int
    deployment: Deployment
    network: SimulatedNetwork
    coordinator: Coordinator
    buffers: BufferChecker
    cores: CoreChecker
    began_ns: int
    nodes: dict[PeerId, Node] = field(default_factory=dict)
    launches: list[tuple[int, PeerId]] = field(default_factory=list)
    exit_notices: list[tuple[int, PeerId, str]] = field(default_factory=list)

    @property
    def has_driver(self) -> bool:
        """Whether its driver is still there."""
        return COORDINATOR in self.nodes

    @property
    def workers(self) -> dict[PeerId, Worker]:
        """The workers that are still there."""
        actors = {peer: node.actor for peer, node in self.nodes.items()}
        return {p: actor for p, actor in actors.items() if isinstance(actor, Worker)}

    def story(self) -> list[str]:
        """Return what the driver decided, in virtual time."""
        told = self.coordinator.story
        start = f"{self.began_ns / 1e9:10.3f} s  driver {self.number} is started"
        offset_ns = told.began_ns - self.began_ns
        return [start, *(each.line(offset_ns) for each in told.entries())]

    def times_ns(self) -> list[int]:
        """Return when something happens here next."""
        if not self.nodes:
            return []
        woken = self.network.woken
        times = [node.wants_ns(woken) for node in self.nodes.values()]
        times += [notice[0] for notice in self.exit_notices[:1]]
        times += [launch[0] for launch in self.launches[:1]]
        if self.network.next_ns is not None:
            times.append(self.network.next_ns)
        return times

    def deliver_notices(self, now_ns: int) -> None:
        """Let the launcher tell the driver of processes that ended."""
        notices = self.exit_notices
        while notices and notices[0][0] <= now_ns:
            _, peer, reason = notices.pop(0)
            if self.has_driver:
                self.coordinator.worker_exited(peer, reason)
                self.network.woken.add(COORDINATOR)


def ready_nodes(sites: Iterable[Site], now_ns: int) -> list[tuple[Site, Node]]:
    """Return the nodes that can have a turn now; asked before every turn."""
    ready = []
    for site in sites:
        woken = site.network.woken
        for peer, node in site.nodes.items():
            is_due = node.is_busy or node.wake_ns <= now_ns or peer in woken
            if is_due and node.frozen_until_ns <= now_ns:
                ready.append((site, node))
    return ready
