"""What must hold in every simulated run, whatever goes wrong.

While it runs: the elements of a channel are ``(BATCH | MARK)* END`` with sequence
numbers from 0 on, at both ends (`ChannelChecker`); no channel holds more than its window
and one batch (`BufferChecker`, and `ChannelChecker` between workers); every core holds what it promises
(`CoreChecker`).  At its end (`judge`):
the job succeeded with the rows it should have, or failed for a reason that was given
it, and then nothing was committed; nobody and nothing is left.  With snapshots only a
cancellation and damage are such reasons; `snapshot_checker` has what must hold for the snapshots.
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import OperatorError
from millstream.plan.frames import CollectFrames
from millstream.protocol.packets import ELEMENTS, PacketKind
from millstream.simulation.options import FaultKind
from millstream.state.batches import as_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import Config
    from millstream.errors import MillstreamError
    from millstream.protocol.ids import ChannelId, Generation, PeerId
    from millstream.protocol.packets import Packet
    from millstream.runtime.assembly import Assembly
    from millstream.runtime.channels import InputChannel
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.cluster import Cluster
    from millstream.values import Row, Rows

__all__ = [
    "LOSSES",
    "BufferChecker",
    "ChannelChecker",
    "Expectation",
    "difference",
    "judge",
    "sink_rows",
]


LOSSES = frozenset({"WorkerLostError", "TransportError", "LaunchError"})
"""What a job ends with that has lost somebody; it can be run again."""
_DIFFERENCES_SHOWN = 3
_PROBLEMS_SHOWN = 4


_Channel = tuple["Generation", "ChannelId"]


@dataclass(slots=True)
class _End:
    """How far one end of a channel has got."""

    sequence: int = 0
    is_ended: bool = False


class ChannelChecker:
    """Sees every packet; checks the grammar and the credit of every channel."""

    def __init__(self, config: Config, problems: list[str]) -> None:
        self._credit_bytes = config.channel_credit_bytes
        self._problems = problems
        self._sent: dict[_Channel, _End] = {}
        self._arrived: dict[_Channel, _End] = {}
        self._in_flight: Counter[_Channel] = Counter()

    def sent(self, source: PeerId, target: PeerId, packet: Packet) -> None:
        """Check what a writer hands over."""
        if packet.kind not in ELEMENTS:
            return
        self._advance(self._sent, packet, f"worker {source} sent to worker {target}")
        channel = (packet.generation, packet.channel)
        in_flight = self._in_flight[channel]
        if packet.kind is PacketKind.BATCH and in_flight >= self._credit_bytes:
            self._problems.append(
                f"channel {packet.channel} had {in_flight} bytes in flight when another "
                f"batch was sent; its window is {self._credit_bytes} bytes"
            )
        self._in_flight[channel] += packet.cost

    def arrived(self, source: PeerId, target: PeerId, packet: Packet) -> None:
        """Check what a reader gets."""
        if packet.kind is PacketKind.CREDIT:
            self._in_flight[packet.generation, packet.channel] -= packet.body
        elif packet.kind in ELEMENTS:
            where = f"worker {target} got from worker {source}"
            self._advance(self._arrived, packet, where)

    def _advance(self, ends: dict[_Channel, _End], packet: Packet, where: str) -> None:
        end = ends.setdefault((packet.generation, packet.channel), _End())
        if end.is_ended or packet.sequence != end.sequence:
            due = (
                "nothing, after the end" if end.is_ended else f"element {end.sequence}"
            )
            self._problems.append(
                f"{where} element {packet.sequence} ({packet.kind.name}) of channel "
                f"{packet.channel}, where {due} was due"
            )
        end.sequence = packet.sequence + 1
        end.is_ended = end.is_ended or packet.kind is PacketKind.END


class BufferChecker:
    """Looks at the channels inside a worker after each of its turns."""

    def __init__(self, deployment: Deployment, problems: list[str]) -> None:
        self._batches_max = deployment.config.local_channel_batches
        self._problems = problems
        self._local: dict[PeerId, list[InputChannel]] = {}

    def deployed(self, worker: PeerId, made: Assembly) -> None:
        """Look at the channels of other tasks from now on."""
        self._local[worker] = [
            c
            for c in made.inputs.values()
            if c.channel.source_index == c.channel.target_index
        ]

    def check(self, worker: PeerId) -> None:
        """Check that no channel holds more batches than it may."""
        for channel in self._local.get(worker, []):
            if channel.batch_count > self._batches_max:
                self._problems.append(
                    f"channel {channel.channel.id} inside worker {worker} holds "
                    f"{channel.batch_count} batches; at most {self._batches_max} may wait"
                )


@dataclass(frozen=True, slots=True)
class Expectation:
    """How a run should end when nothing goes wrong.

    Attributes
    ----------
    check
        Gets the rows of every sink by name and says what is wrong, or nothing.
    error
        What the flow raises by itself.
    """

    check: Callable[[dict[str, Rows]], str | None] = field(default=lambda _: None)
    error: MillstreamError | None = None


def sink_rows(cluster: Cluster) -> dict[str, Rows]:
    """Return what every sink got, by the name of its operator."""
    stages = cluster.deployment.stages.stages
    nodes = [node for stage in stages for node in stage.nodes if node.is_sink]
    results = cluster.coordinator.results
    rows = {
        node.name: [
            row
            for item in results.rows(node.name)
            for row in (
                as_rows(item) if isinstance(node.spec, CollectFrames) else [item]
            )
        ]
        for node in nodes
    }
    names = {node.id: node.name for node in nodes}
    return rows | {names[id]: sink.rows for id, sink in cluster.sinks.items()}  # noqa: A001


def judge(cluster: Cluster, expected: Expectation) -> list[str]:
    """Return everything that is wrong with a run that is over."""
    problems = _shortened(cluster.problems)
    error = cluster.error()
    if error is None and cluster.coordinator.outcome is None:
        return problems or ["the job has no outcome"]
    if error is not None:
        found = _judge_error(cluster, error, expected.error)
    elif expected.error is not None:
        found = f"the job succeeded, but should have raised {expected.error}"
    else:
        found = expected.check(sink_rows(cluster))
    problems += [found] if found else []
    problems += _judge_commits(cluster, is_success=error is None)
    problems += _judge_remains(cluster)
    return problems


def _shortened(problems: list[str]) -> list[str]:
    """Keep the first ones; what follows mostly follows from them."""
    rest = len(problems) - _PROBLEMS_SHOWN
    return problems[:_PROBLEMS_SHOWN] + ([f"and {rest} more"] if rest > 0 else [])


def _judge_error(
    cluster: Cluster, error: MillstreamError, expected: MillstreamError | None
) -> str | None:
    fatal = {fault.kind for fault in cluster.fired if fault.is_fatal}
    name = type(error).__name__
    if not str(error):
        return f"the job ended with {name} without a reason"
    if _is_asked_for(name, fatal, is_keeping=cluster.is_keeping):
        return None
    if isinstance(error, OperatorError) and isinstance(expected, OperatorError):
        return _judge_operator_error(error, expected)
    if expected is not None and type(error) is type(expected):
        return None
    kinds = sorted(kind.value for kind in fatal) or ["nothing fatal"]
    return f"the job ended with {name}: {error}; what went wrong was {', '.join(kinds)}"


def _is_asked_for(name: str, fatal: set[FaultKind], *, is_keeping: bool) -> bool:
    """Whether a job may end in this way after these faults."""
    if name == "JobCancelledError":
        return FaultKind.CANCEL in fatal
    if name in {"SnapshotError", "SnapshotDamagedError"}:
        return FaultKind.DAMAGE in fatal
    return name in LOSSES and bool(fatal - {FaultKind.CANCEL}) and not is_keeping


def _judge_operator_error(error: OperatorError, expected: OperatorError) -> str | None:
    if error.operator != expected.operator or error.location != expected.location:
        return (
            f"{error.operator!r} at {error.location} was blamed, should be "
            f"{expected.operator!r} at {expected.location}"
        )
    return None if error.position else f"no position was given with: {error}"


def _judge_commits(cluster: Cluster, *, is_success: bool) -> list[str]:
    problems = []
    for id, sink in cluster.sinks.items():  # noqa: A001 - the user's word
        problems += [f"sink {id}: {problem}" for problem in sink.problems]
        how = "succeeded" if is_success else "did not succeed"
        most = _completions_max(cluster) if cluster.is_keeping else int(is_success)
        if not int(is_success) <= sink.commit_count <= most:
            problems.append(
                f"sink {id} was completed {sink.commit_count} times by a job that {how}"
            )
        if sink.rows and not is_success and not cluster.is_keeping:
            problems.append(f"sink {id} shows rows of a job that {how}")
    return problems


def _completions_max(cluster: Cluster) -> int:
    """Whoever goes on from the last epoch completes once more what was complete."""
    return sum(1 + len(site.coordinator.recoveries) for site in cluster.sites)


def _judge_remains(cluster: Cluster) -> list[str]:
    problems = []
    for site in cluster.sites:
        if site.workers:
            problems.append(f"workers {sorted(site.workers)} were left behind")
        if site.network.open_connections:
            count = site.network.open_connections
            problems.append(f"{count} ends of connections were left open")
    return problems


def difference(found: dict[str, Rows], expected: dict[str, Rows]) -> str | None:
    """Compare the rows of sinks as multisets and say what differs.

    A sum of floats depends on the order of its terms, so floats that agree in nine
    digits are the same.

    Examples
    --------
    >>> difference({"sink": [1, 2]}, {"sink": [2, 1]})
    >>> difference({"sink": [1, 1]}, {"sink": [1]})
    "sink 'sink' got 1 rows (1) too many and lacks none"
    >>> difference({"sink": [(2, 5)]}, {"sink": []})
    "sink 'sink' got 1 rows ((2, 5)) too many and lacks none"
    >>> difference({"sink": [0.1 + 0.2]}, {"sink": [0.3]})
    """
    for name, rows in expected.items():
        has, wants = found.get(name, []), rows
        counts, wanted = _counted(has), _counted(wants)
        more, less = counts - wanted, wanted - counts
        if more or less:
            extra, missing = _told(more, has), _told(less, wants)
            return f"sink {name!r} got {extra} too many and lacks {missing}"
    return None


def _counted(rows: Rows) -> Counter[Row]:
    return Counter(_token(row) for row in rows)


def _token(row: object) -> object:
    """Return something hashable that is equal for equal rows."""
    if isinstance(row, float):
        return float(f"{row:.9g}")
    if isinstance(row, dict):
        return ("dict", frozenset((_token(k), _token(v)) for k, v in row.items()))
    if isinstance(row, set):
        return ("set", frozenset(row))
    if isinstance(row, list | tuple):
        return (type(row).__name__, *(_token(item) for item in row))
    try:
        hash(row)
    except TypeError:
        return pickle.dumps(row)
    return row


def _told(counts: Counter[Row], rows: Rows) -> str:
    """Say how many rows there are of these tokens, and show some of them."""
    by_token = {_token(row): row for row in rows}
    shown = [by_token[token] for token in list(counts)[:_DIFFERENCES_SHOWN]]
    samples = ", ".join(map(repr, shown))
    return f"{counts.total()} rows ({samples})" if samples else "none"
