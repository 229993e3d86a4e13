"""The intake of a source: its splits, as far as they belong to the task.

What a split is, and how it is read, is known to the source alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.runtime.chain import TaskFailedError
from millstream.runtime.elements import END_OF_INPUT, TakenBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.config import Config
    from millstream.connectors.base import Source, SourceReader, Split
    from millstream.plan.logical import Node
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.batching import BatchSize
    from millstream.protocol.messages import Offset
    from millstream.runtime.elements import Element
    from millstream.state.base import State

__all__ = ["SourceIntake"]


class SourceIntake:
    """Reads the splits of a source that belong to a task, a batch of each in turn.

    It is in no loop, and every cut is sealed at once.

    Parameters
    ----------
    operator
        Name of the source in the plan.
    offsets
        Where to go on in splits that were read before; None in those read to the end.
    """

    has_rounds = False
    knows_splits = True
    bytes_taken = 0

    def __init__(
        self,
        operator: str,
        source: Source[Any],
        splits: list[Split],
        config: Config,
        offsets: Mapping[str, int | None],
        *,
        frame_size: BatchSize | None = None,
    ) -> None:
        self._operator = operator
        self._source = source
        self._config = config
        self._announced: deque[Barrier] = deque()
        self._begin_at = dict(offsets)
        #: How far splits had been read that were left before their end.
        self._left: dict[str, int] = {}
        self._done = [name for name, offset in offsets.items() if offset is None]
        self._waiting = deque(s for s in splits if s.name not in self._done)
        #: How large the data frames should be, if it makes such.
        self._frame_size = frame_size
        self._open: deque[tuple[Split, SourceReader[Any]]] = deque()
        self._current: tuple[Split, int, int] | None = None
        self._rows_of: dict[str, int] = {}
        self._idle_ns = round(config.source_idle_ms * 1_000_000)
        self._idle_until_ns: int | None = None

    @property
    def _is_over(self) -> bool:
        """Whether every split has been read to its end."""
        return not self._open and not self._waiting

    @property
    def origin(self) -> str:
        """Name of the split that the last batch came from."""
        return "" if self._current is None else self._current[0].name

    def open_origins(self, *, are_waiting: bool) -> list[str]:
        """Return the splits that have not been read to their end, or only begun ones."""
        waiting = [s.name for s in self._waiting] if are_waiting else []
        return [s.name for s, _ in self._open] + waiting

    def take(self, now_ns: int) -> Element | None:
        """Return a batch, a barrier that was announced, or the end."""
        if self._announced and not self._is_over:
            # What had ended before the snapshot that is restored ends without a barrier.
            return self._announced.popleft()
        if self._idle_until_ns is not None and now_ns < self._idle_until_ns:
            return None
        self._idle_until_ns = None
        idle_count = 0
        while self._open_next():
            split, reader = self._open[0]
            rows = reader.read(self._batch_rows)
            if rows is None:
                reader.close()
                self._open.popleft()
                self._done.append(split.name)
                continue
            if len(rows) > 0:
                self._note(split, reader, len(rows))
                if not self._source.is_bounded:
                    self._open.rotate(-1)
                return TakenBatch(rows)
            self._open.rotate(-1)
            idle_count += 1
            if idle_count >= len(self._open):
                self._idle_until_ns = now_ns + self._idle_ns
                return None
        return END_OF_INPUT

    def wake_ns(self) -> int | None:
        """Return when an idle source should be asked again."""
        return self._idle_until_ns

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
            offset = self._begin_at.get(split.name) or 0
            self._open.append((split, self._source.open(split, offset, self._config)))
        return bool(self._open)

    def announce(self, barrier: Barrier) -> None:
        """Let the task cut before it takes the next batch."""
        self._announced.append(barrier)
        self._idle_until_ns = None

    def begin_round(self) -> None:
        """Do nothing: rounds do not come to sources."""

    def states(self) -> dict[str, State]:
        """Return nothing: how far it has read is told by `offsets`."""
        return {}

    def release(self, *, is_pausing: bool) -> bool:  # noqa: ARG002 - as channels
        """Return True: no barrier comes round to a source."""
        return True

    def resume(self) -> None:
        """Do nothing: a task that pauses does not ask."""

    def offsets(self) -> tuple[Offset, ...]:
        """Return how far every split has been read that has been begun."""
        began = {split.name: reader.offset for split, reader in self._open}
        waiting = {
            split.name: self._begin_at[split.name]
            for split in self._waiting
            if self._begin_at.get(split.name) is not None
        }
        places = [
            (name, offset or 0, False)
            for name, offset in (began | waiting | self._left).items()
        ]
        places += [(name, 0, True) for name in self._done]
        return tuple((self._operator, *place) for place in places)

    def _note(self, split: Split, reader: SourceReader[Any], row_count: int) -> None:
        before = self._rows_of.get(split.name, 0)
        self._rows_of[split.name] = before + row_count
        self._current = (split, before, reader.offset)

    def waiting(self) -> tuple[int, int]:
        """Return nothing: what was not taken is with the source."""
        return 0, 0

    def position(self, row_index: int | None, row_count: int) -> str:
        """Say which row of the last batch is meant."""
        if self._current is None:
            return "before the first record"
        split, before, offset = self._current
        if row_index is None:
            return f"in a batch of {row_count} records of {split.name} before offset {offset}"
        begin = self._begin_at.get(split.name)
        since = f" after offset {begin}" if begin else ""
        return f"record {before + row_index}{since} of {split.name}"

    def failure(self, error: BaseException, node: Node) -> TaskFailedError:  # noqa: ARG002 - as channels
        """Return what says which split could not be read, or opened."""
        return TaskFailedError(None, node, self._reading())

    def _reading(self) -> str:
        if not self._open:
            return "while opening what is read next"
        name = self._open[0][0].name
        count = self._rows_of.get(name, 0)
        return f"while reading {name}" + (f" after {count} records" if count else "")

    def validate(self) -> None:
        """Assert nothing: it has no core."""

    def close(self) -> None:
        """Close every reader, and remember how far each had come."""
        while self._open:
            split, reader = self._open.popleft()
            self._left[split.name] = reader.offset
            reader.close()
        self._left |= {s.name: self._begin_at.get(s.name) or 0 for s in self._waiting}
        self._waiting.clear()
