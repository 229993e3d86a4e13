"""What must hold in every simulated run, whatever goes wrong.

While it runs: the elements of a channel are ``BATCH* END`` with sequence numbers from 0
on, at both ends (`ChannelChecker`); no channel holds more than its window and one
batch (`BufferChecker`, and `ChannelChecker` between workers).  At its end (`judge`):
the job succeeded with the rows it should have, or failed for a reason that was given
it, and then nothing was committed; nobody and nothing is left.
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.errors import OperatorError
from millstream.plan.frames import CollectFrames
from millstream.protocol.frames import FrameKind
from millstream.runtime.batches import as_rows
from millstream.simulation.options import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import Config
    from millstream.errors import MillstreamError
    from millstream.protocol.frames import Frame
    from millstream.protocol.ids import ChannelId, PeerId
    from millstream.runtime.channels import InputChannel
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.worker import Worker
    from millstream.simulation.cluster import Cluster

__all__ = [
    "BufferChecker",
    "ChannelChecker",
    "Expectation",
    "difference",
    "judge",
    "sink_rows",
]

Rows = list[Any]

_LOSSES = frozenset({"WorkerLostError", "TransportError", "LaunchError"})
_DIFFERENCES_SHOWN = 3
_PROBLEMS_SHOWN = 4


@dataclass(slots=True)
class _End:
    """How far one end of a channel has got."""

    sequence: int = 0
    is_ended: bool = False


class ChannelChecker:
    """Sees every frame; checks the grammar and the credit of every channel."""

    def __init__(self, config: Config, problems: list[str]) -> None:
        self._window_bytes = config.channel_credit_bytes
        self._problems = problems
        self._sent: dict[ChannelId, _End] = {}
        self._arrived: dict[ChannelId, _End] = {}
        self._in_flight: Counter[ChannelId] = Counter()

    def sent(self, source: PeerId, target: PeerId, frame: Frame) -> None:
        """Check what a writer hands over."""
        if frame.kind not in {FrameKind.BATCH, FrameKind.END}:
            return
        self._advance(self._sent, frame, f"worker {source} sent to worker {target}")
        in_flight = self._in_flight[frame.channel]
        if frame.kind is FrameKind.BATCH and in_flight >= self._window_bytes:
            self._problems.append(
                f"channel {frame.channel} had {in_flight} bytes in flight when another "
                f"batch was sent; its window is {self._window_bytes} bytes"
            )
        self._in_flight[frame.channel] += frame.cost

    def arrived(self, source: PeerId, target: PeerId, frame: Frame) -> None:
        """Check what a reader gets."""
        if frame.kind is FrameKind.CREDIT:
            self._in_flight[frame.channel] -= frame.body
        elif frame.kind in {FrameKind.BATCH, FrameKind.END}:
            where = f"worker {target} got from worker {source}"
            self._advance(self._arrived, frame, where)

    def _advance(self, ends: dict[ChannelId, _End], frame: Frame, where: str) -> None:
        end = ends.get(frame.channel)
        if end is None:
            end = ends[frame.channel] = _End()
        if end.is_ended or frame.sequence != end.sequence:
            due = (
                "nothing, after the end" if end.is_ended else f"element {end.sequence}"
            )
            self._problems.append(
                f"{where} element {frame.sequence} ({frame.kind.name}) of channel "
                f"{frame.channel}, where {due} was due"
            )
        end.sequence = frame.sequence + 1
        end.is_ended = end.is_ended or frame.kind is FrameKind.END


class BufferChecker:
    """Looks at the channels inside a worker after each of its turns."""

    def __init__(self, deployment: Deployment, problems: list[str]) -> None:
        self._batches_max = deployment.config.local_channel_batches
        self._problems = problems
        self._local: dict[PeerId, list[InputChannel]] = {}

    def check(self, worker: Worker) -> None:
        """Check that no channel holds more batches than it may."""
        for channel in self._channels(worker):
            if len(channel) > self._batches_max:
                self._problems.append(
                    f"channel {channel.channel.id} inside worker {worker.id} holds "
                    f"{len(channel)} batches; at most {self._batches_max} may wait"
                )

    def _channels(self, worker: Worker) -> list[InputChannel]:
        known = self._local.get(worker.id)
        if known:
            return known
        inputs = worker._made.inputs.values()  # noqa: SLF001 - a checker looks inside
        own = [c for c in inputs if c.channel.source_index == c.channel.target_index]
        self._local[worker.id] = own
        return own


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
    nodes = [n for s in cluster.deployment.stages.stages for n in s.nodes if n.is_sink]
    results = cluster.coordinator.results
    rows = {
        node.name: [
            row
            for item in results.rows(node.id)
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
    outcome = cluster.coordinator.outcome
    if outcome is None:
        return problems or ["the job has no outcome"]
    error = cluster.coordinator.error()
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
    if name == "JobCancelledError" and FaultKind.CANCEL in fatal:
        return None
    if name in _LOSSES and fatal - {FaultKind.CANCEL}:
        return None
    if isinstance(error, OperatorError) and isinstance(expected, OperatorError):
        return _judge_operator_error(error, expected)
    if expected is not None and type(error) is type(expected):
        return None
    kinds = sorted(kind.value for kind in fatal) or ["nothing fatal"]
    return f"the job ended with {name}: {error}; what went wrong was {', '.join(kinds)}"


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
        if sink.commit_count != int(is_success):
            how = "succeeded" if is_success else "did not succeed"
            problems.append(
                f"sink {id} was committed {sink.commit_count} times by a job that {how}"
            )
        if sink.unready:
            problems.append(
                f"sink {id} was committed before tasks {sink.unready} closed"
            )
    return problems


def _judge_remains(cluster: Cluster) -> list[str]:
    problems = []
    if cluster.workers:
        problems.append(f"workers {sorted(cluster.workers)} were left behind")
    if cluster.network.open_connections:
        count = cluster.network.open_connections
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
    >>> difference({"sink": [0.1 + 0.2]}, {"sink": [0.3]})
    """
    for name, rows in expected.items():
        has, wants = _counted(found.get(name, [])), _counted(rows)
        more, less = has - wants, wants - has
        if more or less:
            return f"sink {name!r} got {_told(more)} too many and lacks {_told(less)}"
    return None


def _counted(rows: Rows) -> Counter[Any]:
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


def _told(counts: Counter[Any]) -> str:
    samples = ", ".join(repr(row) for row in list(counts)[:_DIFFERENCES_SHOWN])
    return f"{counts.total()} rows ({samples})" if samples else "none"
