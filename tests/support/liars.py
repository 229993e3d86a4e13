"""A small job whose members say whatever the test puts into their mouths.

Coordinator and workers are real, on one thread and one hub; a `Lie` leaves by the link of
a member as if that member had sent it.  Losses are looked after as a launcher does it.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import polars as pl
from hypothesis import strategies as st
from tests.support.snapshots import KEY, MemoryFiles

import millstream as ms
from millstream.config import Config, configured
from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol.barrier import Barrier, Hops, Order, RoundEnd, Splits
from millstream.protocol.ids import COORDINATOR, ChannelId, Generation, PeerId
from millstream.protocol.messages import FROM_COORDINATOR, FROM_WORKERS
from millstream.protocol.packets import Packet, PacketKind
from millstream.protocol.watermark import Watermark
from millstream.runtime.background import Inline
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.inprocess import Hub
from millstream.runtime.snapshots import DriverContext
from millstream.runtime.worker import Worker
from millstream.state.settings import StateSettings
from millstream.state.store import SnapshotStore
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from millstream.runtime.inprocess import LocalLink
    from millstream.state.manifest import Transaction

__all__ = ["ROWS", "Lie", "Theatre", "bodies", "lies", "messages"]

ROWS = 40
_TURN = "20ms"
_TURNS = 30
"""About how many the job takes, if nobody lies."""
_TURNS_MAX = 500
"""Ten seconds: leases, suspicions and the time that workers have to come are over then."""

_NUMBERS = st.integers(-1, 4) | st.sampled_from([-(2**63), 2**31, 2**63, 2**64 - 1])
_WORDS = st.sampled_from(
    [
        "",
        "rows",
        "OperatorError",
        "SnapshotDamagedError",
        "OSError",
        "snapshot",
        "\0",
        "a",
    ]
)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: _NUMBERS,
    str: _WORDS | st.text(max_size=3),
    bytes: st.binary(max_size=8),
    float: st.floats(),
    bool: st.booleans(),
    NoneType: st.none(),
}
_ORDERS = st.lists(st.sampled_from(Order), max_size=2).map(tuple)
_CHANNELS = st.integers(0, 4).map(ChannelId)
_GENERATIONS = st.sampled_from([1, 1, 1, 0, 2]).map(Generation)
_SEQUENCES = st.integers(0, 3)
_USUAL: dict[str, list[Any]] = {
    "file": [None],
    "offsets": [()],
    "transactions": [()],
    "problem": ["", "no"],
    "kind": ["OperatorError", "SnapshotDamagedError", "UsageError"],
    "members": [((1, "", 1), (2, "", 2)), ((1, "", 1),)],
    "placement": [(1, 2), (1, 1), (2, 2)],
    "snapshot": [(0, 0), (1, 1)],
    "barrier": [(n, 0, ("snapshot",)) for n in range(1, 6)],
}
"""What fields of these names can say in the job below."""
_NAMES = st.lists(_WORDS, max_size=2).map(tuple)
_ROWS = st.lists(st.integers(0, 9) | st.tuples(_NUMBERS, _WORDS), max_size=3)
_BODIES: dict[PacketKind, st.SearchStrategy[Any]] = {
    PacketKind.BATCH: _ROWS | st.just(pl.DataFrame({"a": [1]})),
    PacketKind.END: st.none(),
    PacketKind.CLOSE: st.none(),
    PacketKind.CREDIT: st.integers(0, 3) | st.just(2**64 - 1),
    PacketKind.BARRIER: st.builds(
        Barrier, st.integers(1, 5) | st.just(2**63), st.just(0), _ORDERS
    ),
    PacketKind.ROUND: st.builds(RoundEnd, st.booleans()),
    PacketKind.HOPS: st.builds(Hops, st.integers(0, 3)),
    PacketKind.WATERMARK: st.builds(Watermark, st.integers(-1, 3), st.booleans()),
    PacketKind.SPLITS: st.builds(Splits, _WORDS, _NAMES, _NAMES),
}


@dataclass(frozen=True)
class Lie:
    """At a turn of the job, a member says something to another one."""

    turn: int
    source: PeerId
    target: PeerId
    packet: Packet


def _of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of the type that a field of a message is declared with."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of([_of_type(part) for part in parts])
    if origin is tuple and parts[-1] is ...:
        return st.lists(_of_type(parts[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[_of_type(part) for part in parts])
    if is_dataclass(hint):
        hints = get_type_hints(hint).items()
        make: Any = hint
        return st.builds(make, **{name: _number(name, form) for name, form in hints})
    return _PLAIN[hint]


def _number(name: str, hint: Any) -> st.SearchStrategy[Any]:
    """Return what is told of a task, mostly numbers that can be."""
    usual = st.integers(0, 1) if name in {"stage", "task"} else st.integers(0, 9)
    return _mostly(usual, _NUMBERS) if hint is int else _of_type(hint)


def _field(name: str, hint: Any, source: PeerId) -> st.SearchStrategy[Any]:
    """Return what a field may say, mostly so that the others are looked at as well."""
    if name == "worker":
        return _mostly(st.just(source), _NUMBERS)
    if name == "generation":
        return _mostly(st.just(1), _NUMBERS)
    if name in {"stage", "task", "sink", "epoch"}:
        return _mostly(st.integers(0, 3), _NUMBERS)
    if name in _USUAL:
        return _mostly(st.sampled_from(_USUAL[name]), _of_type(hint))
    return _of_type(hint)


def _mostly(
    usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    return st.integers(0, 4).flatmap(lambda n: usual if n else other)


@cache
def messages(kinds: frozenset[type[Any]], source: PeerId) -> st.SearchStrategy[Any]:
    """Return messages of these kinds, mostly as a peer would send them."""
    made = []
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        hints = get_type_hints(kind).items()
        fields = {name: _field(name, hint, source) for name, hint in hints}
        made.append(st.builds(kind, **fields))
    return st.one_of(made)


def bodies(kind: PacketKind) -> st.SearchStrategy[Any]:
    """Return what packets of a kind that is not for messages may carry."""
    return _BODIES[kind]


@st.composite
def lies(draw: st.DrawFn) -> Lie:
    """Return something well-typed from any member to any other one."""
    source, target = draw(st.permutations([COORDINATOR, PeerId(1), PeerId(2)]))[:2]
    is_control = COORDINATOR in (source, target)
    kinds = FROM_COORDINATOR if source == COORDINATOR else FROM_WORKERS
    kind = PacketKind.MESSAGE if is_control else draw(st.sampled_from(sorted(_BODIES)))
    body = draw(messages(kinds, source) if is_control else _BODIES[kind])
    generation, channel = draw(_GENERATIONS), draw(_CHANNELS)
    packet = Packet(kind, generation, channel, draw(_SEQUENCES), body)
    return Lie(draw(st.integers(0, _TURNS)), source, target, packet)


def _flow() -> ms.Flow:
    flow = ms.Flow("job")
    numbers = flow.from_parallel(lambda rank, size: list(range(rank, ROWS, size)))
    numbers.key_by(lambda n: n % 5).sum().collect(name="rows")
    return flow


class Theatre:
    """A job of two workers, and of those that replace them."""

    def __init__(self, *, keeps: bool) -> None:
        self.clock = ManualClock()
        self.hub = Hub()
        self.links: dict[PeerId, LocalLink] = {}
        self.workers: dict[PeerId, Worker] = {}
        files = MemoryFiles()
        settings = {
            "source_batch_rows": 1,
            "slice_batches": 1,
            "shard_count": 16,
            "snapshot_every_ms": 100,
            "lease_ms": 2_000,
            "launch_timeout_ms": 2_000,
            "stop_grace_ms": 500,
        }
        self.store = SnapshotStore(files, KEY, job="job", run="run") if keeps else None
        context = SnapshotContext(
            "job", "run", settings=StateSettings(16) if keeps else None
        )
        config = configured(Config(), settings)
        self.deployment = deploy(_flow().plan, config, 2, context)
        driver = DriverContext(self)
        if self.store is not None:
            driver = DriverContext(self, self.store, self.store.claim())
            self.store.adopt(None)
        self.coordinator = Coordinator(
            [PeerId(1), PeerId(2)],
            self.deployment,
            self._join(COORDINATOR),
            self.clock,
            background=Inline(),
            driver=driver,
        )
        for worker in (PeerId(1), PeerId(2)):
            self._start(worker)

    def play(self, told: list[Lie]) -> bool:
        """Let the job run with these lies; return whether it came to an end.

        One that stands still is cancelled: whoever says that it reads no more and waits
        for rows all the same is believed.
        """
        for turn in range(2 * _TURNS_MAX):
            for lie in told:
                if lie.turn == turn and lie.source in self.hub.peers:
                    self.links[lie.source].send(lie.target, lie.packet)
            self._step()
            if self.coordinator.is_over:
                return True
            if turn == _TURNS_MAX:
                self.coordinator.cancel("it stands still")
        return False

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        """Stand for the sinks, of which there are none."""

    def rows(self) -> list[Any]:
        return sorted(self.coordinator.results.rows("rows"))

    def _step(self) -> None:
        self.coordinator.step()
        wanted, self.coordinator.wanted_workers = self.coordinator.wanted_workers, []
        for new in wanted:
            self._start(new)
        for id_, worker in list(self.workers.items()):
            worker.step()
            if worker.is_over:
                worker.close()
                del self.workers[id_]
                self.coordinator.worker_exited(id_, "its process ended")
        self.clock.advance(_TURN)

    def _join(self, peer: PeerId) -> LocalLink:
        self.links[peer] = self.hub.join(peer)
        return self.links[peer]

    def _start(self, worker: PeerId) -> None:
        self.workers[worker] = Worker(
            worker,
            self.deployment,
            self._join(worker),
            self.clock,
            ("", 0),
            pid=worker,
            background=Inline(),
            store=self.store,
        )
