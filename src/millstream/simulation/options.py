"""What one seed means: how large the cluster, how tight its limits, and what goes wrong.

Every value is drawn from the seed, each with a probability that is itself drawn, so
that some runs have tiny buffers everywhere and others none (swarm testing).  A benign
fault only makes things slow; the sum of all of them stays below every time limit of
the engine.  A fatal one may end the job, and then the job must end well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from millstream.config import BufferPolicy
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.protocol.job import Phase
from millstream.simulation.seed import stream

if TYPE_CHECKING:
    from random import Random

    from millstream.config import Config

__all__ = [
    "STORAGE_KINDS",
    "Fault",
    "FaultKind",
    "FaultLevel",
    "SwarmOptions",
    "calm_options",
    "draw_options",
]

FaultLevel = Literal["none", "benign", "all"]

_MS = 1_000_000
_WORKERS_MAX = 4
_BENIGN_FAULTS_MAX = 4
_FATAL_FAULTS_MAX = 3
_LAUNCH_MS = 20_000
_LAP_TURNS = 100
"""Turns in which a barrier goes round a loop, of slow workers too."""
_CALM_BATCHES = 4
_CALM_TURNS_MAX = 5_000
"""Enough for twenty million rows; a flow that takes longer is taken for endless."""
_BATCH_ROWS_MAX = 64
"""Enough batches of a small input that something can happen between two of them."""
_CREDIT_BYTES_MAX = 16_384
"""More would let an endless source fill a window of tiny packets for a long time."""
_PHASES = (Phase.REGISTERING, Phase.CONNECTING, Phase.RUNNING, Phase.STOPPING)
_PHASE_WEIGHTS = (2, 2, 9, 1)
_LEASE_MS = 1_000
"""A job that survives is not made to wait for long."""
_EPOCH_MAX = 6
_ROUND_TRIPS = 15
"""About how many a small job takes; faults come within this time."""


class FaultKind(Enum):
    """What goes wrong."""

    CLOG = "clog"
    FREEZE = "freeze"
    PARTITION = "partition"
    RESET = "reset"
    CRASH = "crash"
    CANCEL = "cancel"
    FULL = "full"
    STUCK = "stuck"
    DAMAGE = "damage"
    TAKEOVER = "takeover"


STORAGE_KINDS = (
    FaultKind.FULL,
    FaultKind.STUCK,
    FaultKind.DAMAGE,
    FaultKind.TAKEOVER,
)
"""What only a job with snapshots can meet."""


_BENIGN_DISASTER_SHARES = {
    (FaultKind.FULL, False): 0.3,
    (FaultKind.STUCK, False): 0.2,
}
_DISASTER_SHARES = _BENIGN_DISASTER_SHARES | {
    (FaultKind.DAMAGE, False): 0.08,
    (FaultKind.TAKEOVER, True): 0.1,
    (FaultKind.CRASH, True): 0.3,
    (FaultKind.CRASH, False): 0.6,
}
"""How often another fault of a kind follows; of a worker, or of the driver."""

_FATAL_KINDS = (
    FaultKind.CRASH,
    FaultKind.RESET,
    FaultKind.PARTITION,
    FaultKind.FREEZE,
    FaultKind.CANCEL,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes
    ----------
    phase, at_ns
        When: so long after the coordinator came to this phase.
    epoch
        If not 0: so long after this epoch, or a later one, was complete.
    peer
        Whom it hits; nobody in particular for `CANCEL` and what happens to the disk.
    other
        The far end of a link; None means every link of `peer`.
    is_fatal
        Whether the job may end because of it.
    """

    at_ns: int
    kind: FaultKind
    peer: PeerId
    other: PeerId | None = None
    duration_ns: int = 0
    is_fatal: bool = False
    phase: Phase = Phase.REGISTERING
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class SwarmOptions:
    """Everything that a simulated run may vary.

    Attributes
    ----------
    late_share
        Part of the packets that take ten times as long as the slowest other.
    turn_ns_max
        Longest time that one turn of a worker takes.
    slow_worker
        A worker that gets a turn only when the others have had many, or None.
    short_read_share, idle_share
        How often a source returns fewer rows than asked for, or none.
    rows_per_epoch
        Rows of a split that come with every epoch; 0 if all are there at once.
    is_exit_reported
        Whether the launcher tells the coordinator that a worker's process ended.
    is_keeping
        Whether the job takes snapshots, and must survive what is not a cancellation.
    piece_ns_max
        Longest time that a piece of background work takes.
    deltas_max
        Deltas of a task that are not merged yet.
    turns_max
        Turns after which the job counts as one that never ends.
    """

    workers: int
    config: Config
    delay_ns_min: int = 1_000
    delay_ns_max: int = 20_000
    late_share: float = 0.0
    turn_ns_max: int = 2_000
    slow_worker: int | None = None
    skew_ns_max: int = 0
    short_read_share: float = 0.0
    idle_share: float = 0.0
    rows_per_epoch: int = 0
    is_exit_reported: bool = False
    is_keeping: bool = False
    piece_ns_max: int = 1_000_000
    deltas_max: int = 32
    turns_max: int = 400_000
    faults: tuple[Fault, ...] = ()

    @property
    def budget_ns(self) -> int:
        """Virtual time in which the job must be over after the last fault is."""
        config = self.config
        limits_ms = (
            config.launch_timeout_ms + 4 * config.lease_ms + 2 * config.stop_grace_ms
        )
        return (60_000 + limits_ms) * _MS


def calm_options(config: Config, workers: int) -> SwarmOptions:
    """Return a run in which nothing goes wrong and nothing is tight."""
    calm = replace(config, launch_timeout_ms=_LAUNCH_MS, slice_batches=_CALM_BATCHES)
    return SwarmOptions(workers, calm, turns_max=_CALM_TURNS_MAX)


def draw_options(
    seed: int,
    config: Config,
    level: FaultLevel,
    workers: int | None = None,
    *,
    is_keeping: bool = False,
) -> SwarmOptions:
    """Draw everything about a run from its seed; `workers` may be fixed."""
    shape = stream(seed, "shape")
    count = shape.randint(1, _WORKERS_MAX)
    count = workers or count
    if is_keeping:
        config = replace(config, lease_ms=min(_LEASE_MS, config.lease_ms))
    tight = _draw_config(stream(seed, "config"), config)
    delay_ns_max = round(10 ** shape.uniform(4, 7.3))
    faults = _draw_faults(stream(seed, "faults"), tight, level, count, delay_ns_max)
    options = SwarmOptions(
        workers=count,
        config=tight,
        delay_ns_min=shape.randint(1, delay_ns_max // 2),
        delay_ns_max=delay_ns_max,
        late_share=shape.choice((0.0, 0.0, 0.01, 0.1)),
        turn_ns_max=round(10 ** shape.uniform(4, 5.7)),
        slow_worker=shape.randint(1, count) if _chance(shape, 0.3) else None,
        skew_ns_max=shape.choice((0, 3_600_000 * _MS)),
        short_read_share=shape.choice((0.0, 0.1, 0.9)),
        idle_share=shape.choice((0.0, 0.0, 0.05, 0.3)),
        is_exit_reported=_chance(shape, 0.7),
        faults=faults,
    )
    if not is_keeping:
        return options
    return _with_snapshots(options, stream(seed, "disasters"), level, config)


def _with_snapshots(
    options: SwarmOptions, rng: Random, level: FaultLevel, config: Config
) -> SwarmOptions:
    """Let a job take snapshots, and its input come slowly enough for some of them."""
    every_ms = min(rng.choice((1, 2, 5, 20)), config.snapshot_every_ms)
    piece_ns_max = round(10 ** rng.uniform(4, 7.5))
    epoch_ns = every_ms * _MS + 10 * options.delay_ns_max + 16 * piece_ns_max
    timeout_ns = epoch_ns * rng.choice((1, 3, 30))
    # A barrier must be able to go round a loop, or no epoch ever completes.
    timeout_ms = max(timeout_ns, _LAP_TURNS * options.turn_ns_max) // _MS
    config = replace(
        options.config,
        snapshot_every_ms=every_ms,
        snapshot_timeout_ms=max(timeout_ms, options.config.snapshot_timeout_ms),
        source_idle_ms=max(options.config.source_idle_ms, epoch_ns / 5 / _MS),
    )
    return replace(
        options,
        config=config,
        is_keeping=True,
        rows_per_epoch=rng.choice((4, 8, 16)),
        piece_ns_max=piece_ns_max,
        deltas_max=rng.choice((1, 3, 32)),
        faults=options.faults + _draw_disasters(rng, config, level, options.workers),
    )


def _chance(rng: Random, share: float) -> bool:
    return rng.random() < share


def _draw_config(rng: Random, config: Config) -> Config:
    """Make limits tiny; each with a probability of its own in this run."""
    share = rng.choice((0.0, 0.3, 0.6, 0.9))
    choices = {
        "buffer": _draw_policy(rng),
        "frame_buffer": _draw_policy(rng),
        "shard_count": rng.choice((1, 4, 64)),
        "source_batch_rows": 1 << rng.randrange(7),
        "source_block_bytes": 1 << rng.randrange(4, 10),
        "open_splits_max": rng.randint(1, 3),
        "slice_batches": rng.randint(1, 4),
        "local_channel_batches": rng.randint(1, 4),
        "channel_credit_bytes": 1 << rng.randrange(4, 12),
        "result_backlog_bytes": 1 << rng.randrange(12),
        "combine_keys_max": 1 << rng.randrange(6),
        "route_cache_keys_max": 1 << rng.randrange(6),
        "sort_memory_rows": 1 << rng.randrange(5, 10),
        "heartbeat_ms": rng.choice((50, 200)),
        "progress_ms": rng.choice((20, 100)),
        "snapshot_timeout_ms": 1,
        "snapshots_retained": rng.randint(1, 3),
    }
    tight = {
        name: min(value, getattr(config, name)) if isinstance(value, int) else value
        for name, value in choices.items()
        if _chance(rng, share)
    }
    usual = {
        "launch_timeout_ms": _LAUNCH_MS,
        "channel_credit_bytes": min(config.channel_credit_bytes, _CREDIT_BYTES_MAX),
        "source_batch_rows": min(config.source_batch_rows, _BATCH_ROWS_MAX),
    }
    changes: dict[str, Any] = usual | tight
    return replace(config, **changes)


def _draw_policy(rng: Random) -> BufferPolicy:
    rows = 1 << rng.randrange(8)
    timeout_ns = None if _chance(rng, 0.3) else rng.randint(1, 20) * _MS
    return BufferPolicy(rows, timeout_ns)


def _draw_faults(
    rng: Random, config: Config, level: FaultLevel, workers: int, delay_ns: int
) -> tuple[Fault, ...]:
    if level == "none":
        return ()
    faults = [
        _draw_benign(rng, config, workers)
        for _ in range(rng.randint(0, _BENIGN_FAULTS_MAX))
    ]
    if level == "all" and _chance(rng, 0.6):
        kinds = rng.sample(_FATAL_KINDS, rng.randint(1, len(_FATAL_KINDS)))
        faults += [
            _draw_fatal(rng, config, workers, rng.choice(kinds))
            for _ in range(rng.randint(1, _FATAL_FAULTS_MAX))
        ]
    span_ns = 2 * delay_ns * rng.randint(1, _ROUND_TRIPS)
    return tuple(
        replace(
            fault,
            at_ns=rng.randrange(span_ns),
            phase=rng.choices(_PHASES, _PHASE_WEIGHTS)[0],
        )
        for fault in faults
    )


def _draw_benign(rng: Random, config: Config, workers: int) -> Fault:
    """Draw a fault short enough that even all of them together break no time limit."""
    limit_ms = min(config.lease_ms - config.heartbeat_ms, config.handshake_ms)
    longest_ns = limit_ms * _MS // (_BENIGN_FAULTS_MAX + 2)
    duration_ns = rng.randrange(_MS, longest_ns)
    kind = rng.choice((FaultKind.CLOG, FaultKind.PARTITION, FaultKind.FREEZE))
    peer, other = _draw_link(rng, workers)
    if kind is FaultKind.FREEZE:
        peer = PeerId(rng.randint(0, workers))
    return Fault(0, kind, peer, other if kind is FaultKind.CLOG else None, duration_ns)


def _draw_fatal(rng: Random, config: Config, workers: int, kind: FaultKind) -> Fault:
    peer, other = _draw_link(rng, workers)
    duration_ns = 0
    if kind in {FaultKind.PARTITION, FaultKind.FREEZE}:
        duration_ns = rng.randint(config.lease_ms // 2, 3 * config.lease_ms) * _MS
    is_node = kind is FaultKind.PARTITION and _chance(rng, 0.5)
    is_link = kind in {FaultKind.PARTITION, FaultKind.RESET} and not is_node
    return Fault(0, kind, peer, other if is_link else None, duration_ns, is_fatal=True)


def _draw_disasters(
    rng: Random, config: Config, level: FaultLevel, workers: int
) -> tuple[Fault, ...]:
    """Draw what happens to the disk and to drivers; each kind in some of the runs."""
    if level == "none":
        return ()
    shares = _DISASTER_SHARES if level == "all" else _BENIGN_DISASTER_SHARES
    found = []
    for (kind, is_driver), share in shares.items():
        while _chance(rng, share):
            peer = COORDINATOR if is_driver else PeerId(rng.randint(1, workers))
            is_lasting = kind in {FaultKind.FULL, FaultKind.STUCK}
            duration_ns = rng.randrange(_MS, config.lease_ms * _MS) if is_lasting else 0
            fault = Fault(0, kind, peer, None, duration_ns, not is_lasting)
            found.append(_at_some_time(rng, fault))
    return tuple(found)


def _at_some_time(rng: Random, fault: Fault) -> Fault:
    """Let a fault come in some phase, or mostly, soon after some epoch."""
    if _chance(rng, 0.2):
        phase = rng.choices(_PHASES, _PHASE_WEIGHTS)[0]
        return replace(fault, at_ns=round(10 ** rng.uniform(5, 9.3)), phase=phase)
    at_ns = round(10 ** rng.uniform(3, 7.5))
    return replace(fault, at_ns=at_ns, epoch=rng.randint(1, _EPOCH_MAX))


def _draw_link(rng: Random, workers: int) -> tuple[PeerId, PeerId]:
    """Draw a worker and some other peer."""
    peer = PeerId(rng.randint(1, workers))
    others = [PeerId(n) for n in range(workers + 1) if n != peer]
    return peer, rng.choice(others)
