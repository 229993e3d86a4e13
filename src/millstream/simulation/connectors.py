"""What stands between a simulated flow and the outside world.

Sources are read for real, but in chunks that the seed chooses: how fast this machine
is must not change what happens.  Nothing is written: sinks, and functions called for
each row, are replaced by a record of what they would have got.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from millstream.connectors.base import Sink, SinkWriter, Source, SourceReader, Split
from millstream.plan.nodes import ForEach, Read, Write
from millstream.runtime.batches import as_rows
from millstream.simulation.seed import stream

if TYPE_CHECKING:
    from random import Random

    from millstream.config import Config
    from millstream.plan.nodes import Node
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.options import SwarmOptions

__all__ = ["RecordingSink", "SteadySource", "stand_in"]

Rows = list[Any]


def stand_in(
    deployment: Deployment, options: SwarmOptions, seed: int
) -> tuple[Deployment, dict[int, RecordingSink]]:
    """Return the deployment with its connectors replaced, and its sinks by node id."""
    sinks: dict[int, RecordingSink] = {}

    def replaced(node: Node) -> Node:
        match node.spec:
            case Read(source):
                return replace(node, spec=Read(SteadySource(source, options, seed)))
            case Write() | ForEach():
                sinks[node.id] = RecordingSink()
                return replace(node, spec=Write(sinks[node.id]))
        return node

    stages = tuple(
        replace(stage, nodes=tuple(replaced(node) for node in stage.nodes))
        for stage in deployment.stages.stages
    )
    plan = replace(deployment.stages, stages=stages)
    return replace(deployment, stages=plan), sinks


class SteadySource(Source[Any]):
    """Reads another source in chunks that depend on nothing but the seed."""

    def __init__(self, source: Source[Any], options: SwarmOptions, seed: int) -> None:
        self._source = source
        self._options = options
        self._seed = seed
        self.is_parallel = source.is_parallel
        self.is_bounded = source.is_bounded

    def splits(self, task_count: int) -> list[Split]:
        """Return the splits of the source."""
        return self._source.splits(task_count)

    def open(self, split: Split, offset: int, config: Config) -> SourceReader[Any]:
        """Return a reader that draws the size of every chunk."""
        reader = self._source.open(split, offset, config)
        chunks = stream(self._seed, f"chunks of {split.name}")
        return _SteadyReader(reader, self._options, chunks)


class _SteadyReader(SourceReader[Any]):
    def __init__(
        self, reader: SourceReader[Any], options: SwarmOptions, chunks: Random
    ) -> None:
        self._reader = reader
        self._short_read_share = options.short_read_share
        self._idle_share = options.idle_share
        self._chunks = chunks
        self._is_over = False
        self._error: Exception | None = None

    @property
    def offset(self) -> int:
        return self._reader.offset

    def read(self, rows: int) -> Rows | None:
        draw = self._chunks.random
        if draw() < self._idle_share:
            return []
        if draw() < self._short_read_share:
            rows = 1 + int(draw() * rows)
        batch = self._gather(rows)
        if len(batch) > 0:
            return batch
        if self._error is not None:
            raise self._error
        return None if self._is_over else batch

    def _gather(self, rows: int) -> Rows:
        """Read on until there are enough rows, or none for now, or no more.

        The cuts of a data frame depend on nothing but the seed as they are.
        """
        batch: Rows = []
        while len(batch) < rows and not self._is_over and self._error is None:
            try:
                more: Any = self._reader.read(rows - len(batch))
            except Exception as error:  # noqa: BLE001 - raised after the rows before it
                self._error = error
                break
            self._is_over = more is None
            if more is None or len(more) == 0:
                break
            if not isinstance(more, list):
                frame: Rows = more
                return frame
            batch += more
        return batch

    def close(self) -> None:
        self._reader.close()


@dataclass(slots=True)
class _Part:
    rows: Rows = field(default_factory=list)
    is_closed: bool = False


class _RecordingWriter(SinkWriter[Any]):
    def __init__(self, part: _Part) -> None:
        self._part = part

    def write(self, rows: Rows) -> None:
        self._part.rows += as_rows(rows)

    def close(self) -> None:
        self._part.is_closed = True


class RecordingSink(Sink[Any]):
    """Remembers what was written and whether it was committed."""

    def __init__(self) -> None:
        self.commit_count = 0
        #: Tasks that had not closed their writer when the commit came.
        self.unready: list[int] = []
        self._parts: dict[int, _Part] = {}

    @property
    def rows(self) -> Rows:
        """Everything written, task by task."""
        return [row for _, part in sorted(self._parts.items()) for row in part.rows]

    def open(self, job: str, task: int) -> SinkWriter[Any]:  # noqa: ARG002 - one job
        """Return a writer that remembers its rows."""
        part = self._parts[task] = _Part()
        return _RecordingWriter(part)

    def commit(self, job: str) -> None:  # noqa: ARG002 - one job
        """Count the commit, and note who was not ready for it."""
        self.commit_count += 1
        self.unready += [t for t, part in self._parts.items() if not part.is_closed]
