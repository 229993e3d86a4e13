"""A whole job on one thread: real workers, a real coordinator, nothing else real.

The scheduler picks whose turn it is; each turn takes a little virtual time, and when
nobody has anything to do the clock jumps to the next event.  A worker whose step raises
is a bug of the engine and fails the run.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.worker import Worker
from millstream.simulation.checkers import BufferChecker, ChannelChecker
from millstream.simulation.clock import SkewedClock, VirtualClock
from millstream.simulation.connectors import stand_in
from millstream.simulation.network import SimulatedNetwork
from millstream.simulation.options import FaultKind
from millstream.simulation.seed import stream
from millstream.simulation.trace import Happening, Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.job import Phase
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.options import Fault, SwarmOptions

__all__ = ["Cluster"]

_TICK_NS = 20_000_000
"""A coordinator with nothing to do looks at the time this often."""
_SPIN_NS = 500_000
"""A worker that said it had no work is not asked again before this."""
_EXIT_NOTICE_NS_MAX = 3_000_000_000
_TURNS_AT_FULL_SPEED = 4_000
"""An endless source is always busy; after so many turns time passes more quickly."""
_SLOW_SHARE = 0.05


@dataclass(slots=True, eq=False)
class _Node:
    """A peer and when it wants its next turn."""

    peer: PeerId
    actor: Worker | Coordinator
    is_busy: bool = True
    wake_ns: int = 0
    frozen_until_ns: int = 0

    def wants_ns(self, woken: set[PeerId]) -> int:
        """Return when it can have a turn."""
        if self.is_busy or self.peer in woken:
            return self.frozen_until_ns
        return max(self.frozen_until_ns, self.wake_ns)


class Cluster:
    """A simulated job.

    Attributes
    ----------
    problems
        What went wrong that must never go wrong; empty after a good run.
    fired
        The faults that hit something.
    """

    coordinator_class: type[Coordinator] = Coordinator
    worker_class: type[Worker] = Worker
    network_class: type[SimulatedNetwork] = SimulatedNetwork

    def __init__(
        self, deployment: Deployment, options: SwarmOptions, seed: int
    ) -> None:
        self.options = options
        self.clock = VirtualClock()
        self.trace = Trace()
        self.problems: list[str] = []
        self.fired: list[Fault] = []
        self.turn_count = 0
        self.deployment, self.sinks = stand_in(deployment, options, seed)
        self._turns = stream(seed, "turns")
        self._exit_delays = stream(seed, "exits")
        #: What the launcher will say, and when, about processes that ended.
        self._exit_notices: list[tuple[int, PeerId, str]] = []
        self._phase: Phase | None = None
        self._faults: list[tuple[int, Fault]] = []
        self._buffers = BufferChecker(deployment, self.problems)
        self.network = self.network_class(
            self.clock,
            options,
            stream(seed, "delays"),
            self.trace,
            ChannelChecker(options.config, self.problems),
        )
        self._nodes: dict[PeerId, _Node] = {}
        self._populate(stream(seed, "skew").random)

    def _populate(self, draw: Callable[[], float]) -> None:
        options = self.options
        ids = [PeerId(1 + index) for index in range(options.workers)]

        def skewed() -> SkewedClock:
            return SkewedClock(self.clock, int(draw() * options.skew_ns_max))

        self.coordinator = self.coordinator_class(
            ids, self.network.join(COORDINATOR), skewed(), options.config, self._commit
        )
        self._nodes[COORDINATOR] = _Node(COORDINATOR, self.coordinator)
        for id in ids:  # noqa: A001 - the word of the protocol
            worker = self.worker_class(
                id, self.deployment, self.network.join(id), skewed(), ("", 0), pid=id
            )
            self._nodes[id] = _Node(id, worker)

    # Running

    @property
    def workers(self) -> dict[PeerId, Worker]:
        """The workers that are still there."""
        actors = {peer: node.actor for peer, node in self._nodes.items()}
        return {p: actor for p, actor in actors.items() if isinstance(actor, Worker)}

    @property
    def is_over(self) -> bool:
        """Whether nobody is left."""
        return not self._nodes

    def run(self) -> None:
        """Run until nobody is left, or time is up."""
        self.run_until(lambda: self.is_over)

    def run_until(self, is_reached: Callable[[], bool]) -> None:
        """Run until something is so; that it never becomes so is a problem."""
        budget_ns = self.options.budget_ns
        while not is_reached():
            if self.is_over:
                self.problems.append("the job was over before it got there")
                return
            if (
                self.clock.now_ns > budget_ns
                or self.turn_count > self.options.turns_max
            ):
                self.problems.append(self._describe_stall())
                return
            self.turn()

    def close(self) -> None:
        """Give back what a run that did not end still holds."""
        for node in self._nodes.values():
            node.actor.close()

    def turn(self) -> None:
        """Let something happen."""
        self._deliver()
        now_ns, woken = self.clock.now_ns, self.network.woken
        ready = [n for n in self._nodes.values() if n.wants_ns(woken) <= now_ns]
        if ready:
            self._step(self._choose(ready))
        else:
            self._jump()

    def _deliver(self) -> None:
        now_ns = self.clock.now_ns
        if self.coordinator.phase is not self._phase:
            self._enter(self.coordinator.phase)
        while self._faults and self._faults[0][0] <= now_ns:
            self.inject(self._faults.pop(0)[1])
        notices = self._exit_notices
        while notices and notices[0][0] <= now_ns:
            _, peer, reason = notices.pop(0)
            self.coordinator.worker_exited(peer, reason)
            self.network.woken.add(COORDINATOR)
        self.network.deliver()

    def _enter(self, phase: Phase) -> None:
        """Plan the faults of the phase that the job came to."""
        self._phase = phase
        now_ns = self.clock.now_ns
        due = [(now_ns + f.at_ns, f) for f in self.options.faults if f.phase is phase]
        self._faults = sorted([*self._faults, *due], key=lambda entry: entry[0])

    def _choose(self, ready: list[_Node]) -> _Node:
        draw = self._turns.random
        chosen = ready[int(draw() * len(ready))]
        if chosen.peer == self.options.slow_worker and draw() > _SLOW_SHARE:
            chosen = ready[int(draw() * len(ready))]
        return chosen

    def _step(self, node: _Node) -> None:
        self.turn_count += 1
        self.network.woken.discard(node.peer)
        self.trace.note(self.clock.now_ns, Happening.TURN, node.peer)
        try:
            node.is_busy = node.actor.step()
        except Exception:  # noqa: BLE001 - a bug of the engine, whatever it is
            self.problems.append(f"peer {node.peer} raised {traceback.format_exc()}")
            self._remove(node)
            return
        actor = node.actor
        if isinstance(actor, Worker):
            self._buffers.check(actor)
            node.wake_ns = self.clock.now_ns + max(_SPIN_NS, int(actor.wait_s() * 1e9))
        else:
            node.wake_ns = self.clock.now_ns + _TICK_NS
        if actor.is_over:
            self._remove(node)
        self._take_time()

    def _take_time(self) -> None:
        """Let a turn take a while; longer, the longer this has gone on already."""
        slowness = 1 + self.turn_count // _TURNS_AT_FULL_SPEED
        turn_ns_max = self.options.turn_ns_max * slowness
        self.clock.advance(1 + int(self._turns.random() * turn_ns_max))

    def _jump(self) -> None:
        """Nobody has anything to do now: go to when somebody has."""
        woken = self.network.woken
        times = [node.wants_ns(woken) for node in self._nodes.values()]
        times += [entry[0] for entry in self._faults[:1]]
        times += [notice[0] for notice in self._exit_notices[:1]]
        if self.network.next_ns is not None:
            times.append(self.network.next_ns)
        self.clock.jump(min(times))
        self.trace.note(self.clock.now_ns, Happening.JUMP, -1)

    def _remove(self, node: _Node) -> None:
        node.actor.close()
        del self._nodes[node.peer]
        is_coordinator = node.peer == COORDINATOR
        happening = Happening.OVER if is_coordinator else Happening.LEFT
        self.trace.note(self.clock.now_ns, happening, node.peer)
        if not is_coordinator:
            self._report_exit(node.peer, "its process ended")

    def _report_exit(self, peer: PeerId, reason: str) -> None:
        if self.options.is_exit_reported:
            delay_ns = int(self._exit_delays.random() * _EXIT_NOTICE_NS_MAX)
            notice = (self.clock.now_ns + delay_ns, peer, reason)
            self._exit_notices = sorted([*self._exit_notices, notice])

    def _commit(self) -> None:
        for sink in self.sinks.values():
            sink.commit(self.deployment.job)

    def _describe_stall(self) -> str:
        phases = ", ".join(f"{p}: {w.phase.name}" for p, w in self.workers.items())
        return (
            f"the job did not end within {self.clock.now_ns / 1e9:.1f} s of virtual time "
            f"and {self.turn_count} turns; it is {self.coordinator.phase.name}, its "
            f"workers are {{{phases}}}"
        )

    # Faults

    def inject(self, fault: Fault) -> None:
        """Let a fault happen now."""
        if self._inject(fault):
            self.fired.append(fault)
            kind = list(FaultKind).index(fault.kind)
            other = -1 if fault.other is None else fault.other
            now_ns = self.clock.now_ns
            self.trace.note(now_ns, Happening.FAULT, fault.peer, other, detail=kind)

    def _inject(self, fault: Fault) -> bool:
        """Return whether it hit anything."""
        if COORDINATOR not in self._nodes:
            return False
        node = self._nodes.get(fault.peer)
        until_ns = self.clock.now_ns + fault.duration_ns
        match fault.kind:
            case FaultKind.CLOG | FaultKind.PARTITION:
                for other in self._others(fault):
                    self.network.clog(fault.peer, other, until_ns)
                return True
            case FaultKind.FREEZE:
                if node is not None:
                    node.frozen_until_ns = max(node.frozen_until_ns, until_ns)
                return node is not None
            case FaultKind.RESET:
                return any(
                    self.network.reset(fault.peer, o) for o in self._others(fault)
                )
            case FaultKind.CANCEL:
                self.coordinator.cancel("cancelled by the simulation")
                self.network.woken.add(COORDINATOR)
                return True
            case FaultKind.CRASH:
                return node is not None and self._crash(node)

    def _others(self, fault: Fault) -> list[PeerId]:
        if fault.other is not None:
            return [fault.other]
        everybody = [PeerId(number) for number in range(self.options.workers + 1)]
        return [peer for peer in everybody if peer != fault.peer]

    def _crash(self, node: _Node) -> bool:
        """Let a worker vanish as by SIGKILL; nobody hears of what closes its files."""
        assert node.peer != COORDINATOR, "only workers crash"
        self.network.crash(node.peer)
        node.actor.close()
        del self._nodes[node.peer]
        self._report_exit(node.peer, "it was killed")
        return True
