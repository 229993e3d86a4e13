"""A whole job on one thread: real workers, a real coordinator, nothing else real.

The scheduler picks whose turn it is; each turn takes a little virtual time, and when
nobody has anything to do the clock jumps to the next event.  A worker whose step raises
is a bug of the engine and fails the run.

A job with snapshots has somebody who looks after it: a driver that crashed, or that a
fault made fail, is started again on the same disk, as another `Site`.
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError
from millstream.plan.iteration import worker_scope
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.runtime.compacting import Compactions
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.snapshots import DriverContext
from millstream.runtime.takeover import stored_results, take_over
from millstream.runtime.worker import Worker
from millstream.simulation.checkers import (
    LOSSES,
    BufferChecker,
    ChannelChecker,
)
from millstream.simulation.clock import SkewedClock, VirtualClock
from millstream.simulation.connectors import RecordedOutput, stand_in
from millstream.simulation.core_checker import CoreChecker
from millstream.simulation.disk import Deferred, VirtualDisk
from millstream.simulation.driver_incarnation import Node, Site, ready_nodes
from millstream.simulation.network import SimulatedNetwork
from millstream.simulation.observer import WorkerObserver
from millstream.simulation.options import FaultKind
from millstream.simulation.seed import stream
from millstream.simulation.snapshot_checker import SnapshotChecker
from millstream.simulation.trace import Happening, Trace
from millstream.simulation.upkeep import UpkeepChecker
from millstream.state.settings import StateSettings
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import MillstreamError
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
_LAUNCH_NS_MAX = 2_000_000_000
_LATE_WRITER_SHARE = 0.5
_LATE_WRITER_NS_MAX = 3_000_000_000
_MID_PUBLISH_SHARE = 0.5
_DRIVERS_MAX = 8
"""After so many drivers nobody looks after the job any more."""
_KEY = bytes(32)


class Cluster:
    """A simulated job.

    Attributes
    ----------
    site
        The driver that counts: the last one that was started.
    refusal
        Why the last driver could not be started.
    problems
        What went wrong that must never go wrong; empty after a good run.
    fired
        The faults that hit something.
    """

    coordinator_class: type[Coordinator] = Coordinator
    worker_class: type[Worker] = Worker
    network_class: type[SimulatedNetwork] = SimulatedNetwork
    #: Whether it is a mistake of the engine if a peer is given up as making no sense.
    are_peers_honest = True

    def __init__(
        self, deployment: Deployment, options: SwarmOptions, seed: int
    ) -> None:
        self.options = options
        self.clock = VirtualClock()
        self.trace = Trace()
        self.problems: list[str] = []
        self.fired: list[Fault] = []
        self.refusal: SnapshotError | None = None
        self.turn_count = 0
        self._epoch = 0
        self.deployment, self.sinks = stand_in(
            deployment, options, seed, lambda: self._epoch
        )
        self.disk = VirtualDisk(self.clock)
        self._upkeep = UpkeepChecker(self.disk, options.deltas_max, self.problems)
        self.disk.watch = self._snapshots = SnapshotChecker(
            self.disk,
            _KEY,
            self.problems,
            self._upkeep,
            options.config.snapshots_retained,
        )
        self._turns = stream(seed, "turns")
        self._exit_delays = stream(seed, "exits")
        self._skew = stream(seed, "skew")
        self._pieces = stream(seed, "background")
        self._delays = stream(seed, "delays")
        self._disasters = stream(seed, "disasters")
        self._phase: Phase | None = None
        #: Faults whose phase has not come yet, and when those of past phases hit.
        self._coming = list(options.faults)
        self._faults: list[tuple[int, Fault]] = []
        #: When the last of the faults so far is over, and how long the job has then.
        self._healed_ns = 0
        self._budget_ns = options.budget_ns
        #: When drivers will be started.
        self._driver_starts: list[int] = []
        self._late_writers: list[Deferred] = []
        self.sites: list[Site] = []
        self._start_driver()

    @property
    def is_keeping(self) -> bool:
        """Whether the job takes snapshots."""
        return self.options.is_keeping

    @property
    def site(self) -> Site:
        """The last driver that was started, and its workers."""
        return self.sites[-1]

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the last driver."""
        return self.site.coordinator

    @property
    def network(self) -> SimulatedNetwork:
        """The network of the last driver."""
        return self.site.network

    @property
    def workers(self) -> dict[PeerId, Worker]:
        """The workers of the last driver that are still there."""
        return self.site.workers

    def error(self) -> MillstreamError | None:
        """Return why the job did not succeed."""
        return self.refusal or self.coordinator.error()

    def story(self) -> tuple[str, ...]:
        """Return what all drivers decided, one after the other, in virtual time."""
        return tuple(line for site in self.sites for line in site.story())

    # Starting

    def _start_driver(self) -> None:
        """Start the driver on what is on the disk."""
        run = f"simulated{len(self.sites)}"
        deployment = replace(self.deployment, run=run)
        if self.is_keeping:
            settings = StateSettings(self.options.config.shard_count)
            deployment = replace(deployment, state=settings)
        driver = self._driver(deployment)
        network = self.network_class(
            self.clock,
            self.options,
            self._delays,
            self.trace,
            ChannelChecker(self.options.config, self.problems),
        )
        ids = [PeerId(1 + index) for index in range(self.options.workers)]
        background = self._background()
        cores = CoreChecker(self.problems)
        coordinator = self.coordinator_class(
            ids,
            deployment,
            network.join(COORDINATOR),
            self._skewed(),
            background=background,
            driver=driver,
            observer=cores,
        )
        deltas_max = self.options.deltas_max
        coordinator.snapshots.manifests.compactions = Compactions(deltas_max)
        buffers = BufferChecker(deployment, self.problems)
        site = Site(
            len(self.sites), deployment, network, coordinator, buffers, cores,
            self.clock.now_ns,
        )  # fmt: skip
        site.nodes[COORDINATOR] = Node(COORDINATOR, coordinator, background)
        self.sites.append(site)
        self.refusal = None
        for worker in ids:
            self._join(site, worker)

    def _driver(self, deployment: Deployment) -> DriverContext:
        """Do what a driver does before it starts anything."""
        output = RecordedOutput(deployment, self.sinks)
        if not self.is_keeping:
            return DriverContext(output)
        store = SnapshotStore(self.disk, _KEY, job=deployment.job, run=deployment.run)
        is_writing = bool(self.sinks)
        claim, newest = take_over(store, is_writing=is_writing)
        if newest is not None:
            output.commit(newest.epoch, newest.transactions, is_last=False)
        results = stored_results(store, newest)
        return DriverContext(output, store, claim, newest, results, is_writing)

    def _start_again(self) -> None:
        """Start another driver; a full disk is waited for, damage may be final."""
        try:
            self._start_driver()
        except OSError:
            self._plan_driver()
        except SnapshotError as error:
            if not self.disk.damaged:
                self.problems.append(f"a driver could not start: {error}")
            self.refusal = None if self.site.has_driver else error

    def _plan_driver(self) -> None:
        delay_ns = int(self._disasters.random() * _LAUNCH_NS_MAX)
        self._driver_starts.append(self.clock.now_ns + delay_ns)
        self._driver_starts.sort()

    def _join(self, site: Site, peer: PeerId) -> None:
        """Let a worker's process start."""
        background = self._background()
        store = SnapshotStore(self.disk, _KEY, run=site.deployment.run)
        observer = WorkerObserver(
            site.deployment.run, peer, self._snapshots, site.cores, site.buffers
        )
        worker = self.worker_class(
            peer,
            site.deployment,
            site.network.join(peer),
            self._skewed(),
            ("", 0),
            pid=peer,
            background=background,
            store=store if self.is_keeping else None,
            observer=observer,
        )
        site.nodes[peer] = Node(peer, worker, background)

    def _background(self) -> Deferred:
        return Deferred(self.clock, self._pieces, self.options.piece_ns_max, self.disk)

    def _skewed(self) -> SkewedClock:
        skew_ns = int(self._skew.random() * self.options.skew_ns_max)
        return SkewedClock(self.clock, skew_ns)

    # Running

    @property
    def is_over(self) -> bool:
        """Whether nobody is left."""
        return not any(site.nodes for site in self.sites) and not self._driver_starts

    def run(self) -> None:
        """Run until nobody is left, or time is up."""
        while not self.is_over and not self._is_stalled():
            self.turn()

    def run_until(self, is_reached: Callable[[], bool]) -> None:
        """Run until something is so; that it never becomes so is a problem."""
        while not is_reached():
            if self.is_over:
                self.problems.append("the job was over before it got there")
                return
            if self._is_stalled():
                return
            self.turn()

    def _is_stalled(self) -> bool:
        """Whether too much time has passed since the last fault was over; a problem."""
        is_late = self.clock.now_ns > self._healed_ns + self._budget_ns
        if not is_late and self.turn_count <= self.options.turns_max:
            return False
        self.problems.append(self._describe_stall())
        return True

    def close(self) -> None:
        """Give back what a run that did not end still holds."""
        for site in self.sites:
            for node in site.nodes.values():
                node.actor.close()

    def turn(self) -> None:
        """Let something happen."""
        self._deliver()
        ready = ready_nodes(self.sites, self.clock.now_ns)
        if ready:
            self._step(*self._choose(ready))
        else:
            self._jump()

    def _deliver(self) -> None:
        now_ns = self.clock.now_ns
        coordinator = self.sites[-1].coordinator
        if coordinator.phase is not self._phase:
            self._phase = coordinator.phase
            self._plan(lambda f: not f.epoch and f.phase is self._phase)
        if coordinator.snapshots.complete_epoch > self._epoch:
            self._epoch = coordinator.snapshots.complete_epoch
            self._plan(lambda f: 0 < f.epoch <= self._epoch)
        while self._faults and self._faults[0][0] <= now_ns:
            self.inject(self._faults.pop(0)[1])
        while self._driver_starts and self._driver_starts[0] <= now_ns:
            self._driver_starts.pop(0)
            self._start_again()
        for writer in self._late_writers:
            writer.poll()
        for site in self.sites:
            if site.nodes:
                self._deliver_to(site)

    def _deliver_to(self, site: Site) -> None:
        now_ns, coordinator = self.clock.now_ns, site.coordinator
        wanted, coordinator.wanted_workers = coordinator.wanted_workers, []
        for worker in wanted:
            delay_ns = int(self._exit_delays.random() * _LAUNCH_NS_MAX)
            site.launches.append((now_ns + delay_ns, worker))
            site.launches.sort()
        while site.launches and site.launches[0][0] <= now_ns:
            self._join(site, site.launches.pop(0)[1])
        site.deliver_notices(now_ns)
        site.network.deliver()

    def _plan(self, is_due: Callable[[Fault], bool]) -> None:
        """Plan the faults of the phase or the epoch that the job came to."""
        now_ns = self.clock.now_ns
        due = [(now_ns + f.at_ns, f) for f in self._coming if is_due(f)]
        self._coming = [f for f in self._coming if not is_due(f)]
        self._faults = sorted([*self._faults, *due], key=lambda entry: entry[0])

    def _choose(self, ready: list[tuple[Site, Node]]) -> tuple[Site, Node]:
        draw = self._turns.random
        chosen = ready[int(draw() * len(ready))]
        if chosen[1].peer == self.options.slow_worker and draw() > _SLOW_SHARE:
            chosen = ready[int(draw() * len(ready))]
        return chosen

    def _step(self, site: Site, node: Node) -> None:
        self.turn_count += 1
        site.network.woken.discard(node.peer)
        now_ns, actor = self.clock.now_ns, node.actor
        self.trace.note(now_ns, Happening.TURN, node.peer, site.number)
        try:
            with worker_scope(actor):
                node.is_busy = actor.step()
        except Exception:  # noqa: BLE001 - a bug of the engine, whatever it is
            self.problems.append(f"peer {node.peer} raised {traceback.format_exc()}")
            self._remove(site, node)
            return
        if actor.given_up and self.are_peers_honest:
            self.problems.append(f"peer {node.peer} gave up {actor.given_up}")
            actor.given_up.clear()
        if isinstance(actor, Worker):
            site.buffers.check(actor.id)
            site.cores.check(actor)
            node.wake_ns = now_ns + max(_SPIN_NS, int(actor.wait_s() * 1e9))
        else:
            self._upkeep.look_at(actor)
            node.wake_ns = now_ns + _TICK_NS
        if actor.is_over:
            self._remove(site, node)
        self._take_time()

    def _take_time(self) -> None:
        """Let a turn take a while; longer, the longer this has gone on already."""
        slowness = 1 + self.turn_count // _TURNS_AT_FULL_SPEED
        turn_ns_max = self.options.turn_ns_max * slowness
        self.clock.advance(1 + int(self._turns.random() * turn_ns_max))

    def _jump(self) -> None:
        """Nobody has anything to do now: go to when somebody has."""
        times = [time_ns for site in self.sites for time_ns in site.times_ns()]
        times += [entry[0] for entry in self._faults[:1]]
        times += self._driver_starts[:1]
        self.clock.jump(min(times, default=0))
        self.trace.note(self.clock.now_ns, Happening.JUMP, -1)

    def _remove(self, site: Site, node: Node) -> None:
        """Take away a peer that has left by itself."""
        node.actor.close()
        del site.nodes[node.peer]
        is_coordinator = node.peer == COORDINATOR
        happening = Happening.OVER if is_coordinator else Happening.LEFT
        self.trace.note(self.clock.now_ns, happening, node.peer)
        if not is_coordinator:
            self._report_exit(site, node.peer, "its process ended")
        elif site is self.site:
            self._look_after(site.coordinator.error())

    def _look_after(self, error: MillstreamError | None) -> None:
        """Start a driver again that did not end as it should, for a while.

        One that was superseded by another that then refused to start is such a driver.
        """
        if error is None or not self.is_keeping or len(self.sites) >= _DRIVERS_MAX:
            return
        is_loss = type(error).__name__ in LOSSES
        is_unstored = isinstance(error, SnapshotError) or "has taken over" in str(error)
        if is_unstored and not self.disk.damaged:
            self.problems.append(f"the driver gave up: {error}")
        if is_unstored or is_loss:
            self._plan_driver()

    def _report_exit(self, site: Site, peer: PeerId, reason: str) -> None:
        if self.options.is_exit_reported:
            delay_ns = int(self._exit_delays.random() * _EXIT_NOTICE_NS_MAX)
            notice = (self.clock.now_ns + delay_ns, peer, reason)
            site.exit_notices = sorted([*site.exit_notices, notice])

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
            self._healed_ns = max(self._healed_ns, now_ns + fault.duration_ns)
            self.trace.note(now_ns, Happening.FAULT, fault.peer, other, detail=kind)

    def _inject(self, fault: Fault) -> bool:
        """Return whether it hit anything."""
        until_ns = self.clock.now_ns + fault.duration_ns
        match fault.kind:
            case FaultKind.FULL:
                self.disk.full_until_ns = max(self.disk.full_until_ns, until_ns)
                return True
            case FaultKind.STUCK:
                self.disk.slow_until_ns = max(self.disk.slow_until_ns, until_ns)
                return True
            case FaultKind.DAMAGE:
                return self.disk.damage(self._disasters)
            case FaultKind.TAKEOVER:
                return self._take_over()
        return self.site.has_driver and self._strike(fault, until_ns)

    def _strike(self, fault: Fault, until_ns: int) -> bool:
        """Let a fault hit the peers and links of the last driver."""
        network, node = self.network, self.site.nodes.get(fault.peer)
        match fault.kind:
            case FaultKind.CLOG | FaultKind.PARTITION:
                for other in self._others(fault):
                    network.clog(fault.peer, other, until_ns)
                return True
            case FaultKind.FREEZE:
                if node is not None:
                    node.frozen_until_ns = max(node.frozen_until_ns, until_ns)
                return node is not None
            case FaultKind.RESET:
                return any(network.reset(fault.peer, o) for o in self._others(fault))
            case FaultKind.CANCEL:
                self.coordinator.cancel("cancelled by the simulation")
                network.woken.add(COORDINATOR)
                return True
            case _:
                victim = node or self._replacement(fault.peer)
                return victim is not None and self._crash(victim)

    def _replacement(self, peer: PeerId) -> Node | None:
        """Return a worker that came later, for a fault that finds its own gone."""
        workers = sorted(self.workers)
        if peer == COORDINATOR or not workers or not self.is_keeping:
            return None
        return self.site.nodes[workers[peer % len(workers)]]

    def _others(self, fault: Fault) -> list[PeerId]:
        if fault.other is not None:
            return [fault.other]
        everybody = [PeerId(number) for number in range(self.options.workers + 1)]
        return [peer for peer in everybody if peer != fault.peer]

    def _crash(self, node: Node) -> bool:
        """Let a peer vanish as by SIGKILL; nobody hears of what closes its files."""
        site = self.site
        site.network.crash(node.peer)
        if self._disasters.random() < _LATE_WRITER_SHARE:
            delay_ns = int(self._disasters.random() * _LATE_WRITER_NS_MAX)
            self._late_writers.append(node.background.outlive(delay_ns))
        node.actor.close()
        del site.nodes[node.peer]
        if node.peer == COORDINATOR:
            assert self.is_keeping, (
                "a driver without snapshots has nothing to go on from"
            )
            self._plan_driver()
        else:
            self._report_exit(site, node.peer, "it was killed")
        return True

    def _take_over(self) -> bool:
        """Start a second driver while the first one lives, at the worst of moments."""
        if not self.site.has_driver:
            return False
        if self._disasters.random() < _MID_PUBLISH_SHARE:
            self.disk.interruption = self._start_again
        else:
            self._start_again()
        return True
