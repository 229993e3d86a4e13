"""What stands between a simulated flow and the outside world.

Sources are read for real, but in chunks that the seed chooses: how fast this machine
is must not change what happens.  Nothing is written: sinks, and functions called for
each row, are replaced by a record of what they would have got.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from millstream.connectors.base import (
    Later,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    Split,
)
from millstream.plan.nodes import ForEach, Read, Write
from millstream.simulation.seed import stream
from millstream.state.batches import as_rows
from millstream.state.plain import decode
from millstream.values import Row

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.config import Config
    from millstream.plan.logical import Node
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.options import SwarmOptions
    from millstream.state.manifest import Transaction
    from millstream.values import Batch, Rows

    Tide = Callable[[], int]

__all__ = ["RecordedOutput", "RecordingSink", "SteadySource", "stand_in"]


_ALL_ROWS = 1 << 30
_HELD_EPOCHS = 2


def stand_in(
    deployment: Deployment, options: SwarmOptions, seed: int, tide: Tide
) -> tuple[Deployment, dict[int, RecordingSink]]:
    """Return the deployment with its connectors replaced, and its sinks by node id."""
    sinks: dict[int, RecordingSink] = {}

    def replaced(node: Node) -> Node:
        match node.spec:
            case Read(source):
                steady = SteadySource(source, options, seed, tide)
                return replace(node, spec=Read(steady))
            case Write() | ForEach():
                sinks[node.id] = RecordingSink(is_keeping=isinstance(node.spec, Write))
                return replace(node, spec=Write(sinks[node.id]))
        return node

    stages = tuple(
        replace(stage, nodes=tuple(replaced(node) for node in stage.nodes))
        for stage in deployment.stages.stages
    )
    plan = replace(deployment.stages, stages=stages)
    return replace(deployment, stages=plan), sinks


class SteadySource(Source[Row]):
    """Reads another source in chunks that depend on nothing but the seed."""

    def __init__(
        self,
        source: Source[Row],
        options: SwarmOptions,
        seed: int,
        tide: Tide,
    ) -> None:
        self._source = source
        self._options = options
        self._seed = seed
        self._tide = tide
        self.is_parallel = source.is_parallel
        self.is_bounded = source.is_bounded
        self.timed_parts = source.timed_parts

    def splits(self, task_count: int) -> list[Split]:
        """Return the splits of the source."""
        return self._source.splits(task_count)

    def open(self, split: Split, offset: int, config: Config) -> SourceReader[Row]:
        """Return a reader that draws the size of every chunk."""
        reader = self._source.open(split, offset, config)
        chunks = stream(self._seed, f"chunks of {split.name}")
        return _SteadyReader(reader, self._options, chunks, self._tide)


class _SteadyReader(SourceReader[Row]):
    def __init__(
        self,
        reader: SourceReader[Row],
        options: SwarmOptions,
        chunks: Random,
        tide: Tide,
    ) -> None:
        self._reader = reader
        self._tide = tide
        self._rows_per_epoch = options.rows_per_epoch
        self._begin_epoch = tide()
        self._rows_read = 0
        self._short_read_share = options.short_read_share
        self._idle_share = options.idle_share
        self._chunks = chunks
        self._is_over = False
        self._error: Exception | None = None

    @property
    def offset(self) -> int:
        return self._reader.offset

    def read(self, rows: int) -> Batch | None:
        draw = self._chunks.random
        if draw() < self._idle_share:
            return []
        if draw() < self._short_read_share:
            rows = 1 + int(draw() * rows)
        rows = min(rows, self._rows_come())
        if rows == 0:
            return []
        batch = self._gather(rows)
        if len(batch) > 0:
            self._rows_read += len(batch)
            return batch
        if self._error is not None:
            raise self._error
        return None if self._is_over else batch

    def _rows_come(self) -> int:
        """Return how many rows have come that were not read yet."""
        if not self._rows_per_epoch:
            return _ALL_ROWS
        epochs = 1 + self._tide() - self._begin_epoch
        return max(0, epochs * self._rows_per_epoch - self._rows_read)

    def _gather(self, rows: int) -> Batch:
        """Read on until there are enough rows, or none for now, or no more.

        The cuts of a data frame depend on nothing but the seed as they are.
        """
        batch: Rows = []
        while len(batch) < rows and not self._is_over and self._error is None:
            try:
                more = self._reader.read(rows - len(batch))
            except Exception as error:  # noqa: BLE001 - raised after the rows before it
                self._error = error
                break
            self._is_over = more is None
            if more is None or len(more) == 0:
                break
            if not isinstance(more, list):
                return more
            batch += more
        return batch

    def close(self) -> None:
        self._reader.close()


class RecordedOutput:
    """All sinks of a simulated job, as its driver reaches them."""

    def __init__(self, deployment: Deployment, sinks: dict[int, RecordingSink]) -> None:
        nodes = [node for stage in deployment.stages.stages for node in stage.nodes]
        self._job = deployment.job
        self._sinks = {n.name: sinks[n.id] for n in nodes if n.id in sinks}

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        """Commit every sink's own transactions."""
        for name, sink in self._sinks.items():
            own = [decode(t) for n, _, t in transactions if n == name]
            sink.commit(self._job, epoch, own)
            if is_last:
                sink.complete(self._job)


_Token = tuple[int, ...]
"""Task, epoch, and how many there were before."""


class _RecordingWriter(SinkWriter[Row]):
    """Holds rows back at most cuts, and stages them later, as sinks of files do."""

    def __init__(self, sink: RecordingSink, task: int) -> None:
        self.is_keeping = sink.is_keeping
        self._sink = sink
        self._task = task
        self._rows: Rows = []
        self._is_rolling = False

    def write(self, rows: Rows) -> None:
        self._rows += as_rows(rows)

    def roll(self) -> None:
        self._is_rolling = True

    def seal(self, epoch: int) -> object:
        is_due = not self.is_keeping or self._is_rolling
        is_due |= (epoch + self._task) % _HELD_EPOCHS == 0
        self._is_rolling = False
        if not is_due or not self._rows:
            return None
        rows, self._rows = self._rows, []
        return Later(partial(self._sink.stage, self._task, epoch, rows))

    def kept(self) -> Rows:
        return self._rows

    def take_back(self, kept: list[Rows]) -> None:
        self._rows = [row for rows in kept for row in rows]


class RecordingSink(Sink[Row]):
    """Remembers what was sealed and what was committed.

    Attributes
    ----------
    is_keeping
        Whether its writers hold rows back.
    commit_count
        How often the job said that everything was committed.
    problems
        What a sink must never be asked to do.
    last_epoch
        The newest that was committed.
    """

    def __init__(self, *, is_keeping: bool = True) -> None:
        self.is_keeping = is_keeping
        self.commit_count = 0
        self.problems: list[str] = []
        self._staged: dict[_Token, Rows] = {}
        self._committed: dict[_Token, int] = {}
        self.last_epoch = 0

    @property
    def rows(self) -> Rows:
        """Everything committed, task by task."""
        return [row for token in sorted(self._committed) for row in self._staged[token]]

    def stage(self, task: int, epoch: int, rows: Rows) -> _Token:
        """Keep rows that may be committed, under a name that no other attempt has."""
        token = (task, epoch, len(self._staged))
        self._staged[token] = rows
        return token

    def open(self, job: str, task: int) -> SinkWriter[Row]:  # noqa: ARG002 - one job
        """Return a writer that remembers its rows."""
        return _RecordingWriter(self, task)

    def commit(self, job: str, epoch: int, transactions: list[_Token]) -> None:  # noqa: ARG002
        """Make sealed rows count, and note what must not be."""
        for token in map(tuple, transactions):
            if epoch < self.last_epoch and token not in self._committed:
                last = self.last_epoch
                self.problems.append(
                    f"{token} of epoch {epoch} came after epoch {last}"
                )
            before = self._committed.setdefault(token, epoch)
            if before != epoch:
                self.problems.append(f"{token} is in epochs {before} and {epoch}")
        self.last_epoch = max(epoch, self.last_epoch)

    def complete(self, job: str) -> None:  # noqa: ARG002 - one job
        """Count the completions."""
        self.commit_count += 1
