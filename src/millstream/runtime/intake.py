"""Where a task's batches come from: input channels, or the splits of a source.

Both answer `take` with a batch, with None when there is nothing now, and know when
nothing will ever come again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.config import Config
    from millstream.connectors.base import Source, SourceReader, Split
    from millstream.protocol.batching import BatchSize
    from millstream.runtime.channels import InputChannel

__all__ = ["ChannelIntake", "Intake", "SourceIntake"]

Rows = list[Any]


class ChannelIntake:
    """Reads the input channels of a task, in the order in which they have batches."""

    def __init__(self) -> None:
        self.channels: list[InputChannel] = []
        self._ready: deque[InputChannel] = deque()
        self._current: InputChannel | None = None
        self._over_ports: list[int] = []

    @property
    def is_over(self) -> bool:
        """Whether every channel has ended and is empty."""
        return not self._ready and all(c.is_ended for c in self.channels)

    @property
    def is_ready(self) -> bool:
        """Whether `take` may have something to do now."""
        return bool(self._ready)

    def wake(self, channel: InputChannel) -> None:
        """Note that a channel has something new."""
        self._ready.append(channel)

    def take(self, now_ns: int) -> tuple[Rows, int] | None:  # noqa: ARG002 - as sources
        """Return a batch and its input port, or None."""
        while self._ready:
            channel = self._ready.popleft()
            if len(channel):
                self._current = channel
                return channel.take(), channel.port
            if channel.is_ended:
                self._note_end(channel.port)
        return None

    def note_time(self, rows: int, elapsed_ns: int) -> None:
        """Learn nothing: how large batches are is up to their senders."""

    def over_ports(self) -> list[int]:
        """Return the input ports that ended since the last time."""
        ports, self._over_ports = self._over_ports, []
        return ports

    def _note_end(self, port: int) -> None:
        same_port = [c for c in self.channels if c.port == port]
        if all(c.is_ended and not len(c) for c in same_port):
            self._over_ports.append(port)

    def position(self, row_index: int | None, row_count: int) -> str:
        """Say which row of the last batch is meant."""
        channel = self._current
        if channel is None:
            return "after the last record"
        sender = f"task {channel.channel.source_index} of stage {channel.channel.edge.source}"
        if row_index is None:
            return f"in a batch of {row_count} records from {sender}"
        return f"record {channel.rows_taken - row_count + row_index} from {sender}"

    def close(self) -> None:
        """Read nothing more."""
        self._ready.clear()
        for channel in self.channels:
            channel.close()


class SourceIntake:
    """Reads the splits of a source that belong to a task, a batch of each in turn."""

    def __init__(
        self,
        source: Source[Any],
        splits: list[Split],
        config: Config,
        frame_size: BatchSize | None = None,
    ) -> None:
        self._source = source
        self._config = config
        #: How large the data frames should be, if it makes such.
        self._frame_size = frame_size
        self._waiting = deque(splits)
        self._open: deque[tuple[Split, SourceReader[Any]]] = deque()
        self._current: tuple[Split, int, int] | None = None
        self._rows_of: dict[str, int] = {}
        self._idle_ns = round(config.source_idle_ms * 1_000_000)
        #: When an idle source should be asked again.
        self.idle_until_ns: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether every split has been read to its end."""
        return not self._open and not self._waiting

    @property
    def is_ready(self) -> bool:
        """A source is always worth asking, unless it was idle a moment ago."""
        return not self.is_over

    def take(self, now_ns: int) -> tuple[Rows, int] | None:
        """Return a batch and port 0, or None."""
        if self.idle_until_ns is not None and now_ns < self.idle_until_ns:
            return None
        self.idle_until_ns = None
        idle_count = 0
        while self._open_next():
            split, reader = self._open[0]
            rows = reader.read(self._batch_rows)
            if rows is None:
                reader.close()
                self._open.popleft()
                continue
            if len(rows) > 0:
                self._note(split, reader, len(rows))
                if not self._source.is_bounded:
                    self._open.rotate(-1)
                return rows, 0
            self._open.rotate(-1)
            idle_count += 1
            if idle_count >= len(self._open):
                self.idle_until_ns = now_ns + self._idle_ns
                return None
        return None

    @property
    def _batch_rows(self) -> int:
        size = self._frame_size
        return self._config.source_batch_rows if size is None else size.rows

    def note_time(self, rows: int, elapsed_ns: int) -> None:
        """Learn how long it took to read and process a batch."""
        if self._frame_size is not None:
            self._frame_size.note(rows, elapsed_ns)

    def _open_next(self) -> bool:
        """Open the next split: of a bounded source one by one, else all at once."""
        open_max = 1 if self._source.is_bounded else self._config.open_splits_max
        while self._waiting and len(self._open) < open_max:
            split = self._waiting.popleft()
            self._open.append((split, self._source.open(split, 0, self._config)))
        return bool(self._open)

    def _note(self, split: Split, reader: SourceReader[Any], row_count: int) -> None:
        before = self._rows_of.get(split.name, 0)
        self._rows_of[split.name] = before + row_count
        self._current = (split, before, reader.offset)

    def over_ports(self) -> list[int]:
        """Return no ports: a source has one input, and `is_over` tells its end."""
        return []

    def position(self, row_index: int | None, row_count: int) -> str:
        """Say which row of the last batch is meant."""
        if self._current is None:
            return "before the first record"
        split, before, offset = self._current
        if row_index is None:
            return f"in a batch of {row_count} records of {split.name} before offset {offset}"
        return f"record {before + row_index} of {split.name}"

    def close(self) -> None:
        """Close every reader and read nothing more."""
        self._waiting.clear()
        while self._open:
            self._open.popleft()[1].close()


Intake = ChannelIntake | SourceIntake
