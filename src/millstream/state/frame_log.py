"""State of windows on data frames: rows that are added, and forgotten by their number.

A segment has the rows that came since an earlier cut.  They do not replace rows of the
same key, they join them, until a segment says that it stands for everything.  What is
not needed any more is not deleted one by one: the newest segment says from which number
on rows count.

Nothing here knows windows, or what is in the rows.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgpack
import polars as pl

from millstream.state.base import Segment, SegmentKind
from millstream.state.compaction import register_merger
from millstream.state.frame_codec import decode_frame, encode_frame, frame_shards
from millstream.state.stamps import RESTORED, Stamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.protocol.ids import Epoch
    from millstream.state.base import ShardRange
    from millstream.state.compaction import Merging

__all__ = ["FrameLog", "FrameLogState", "LogDelta"]


@dataclass(frozen=True, slots=True)
class LogDelta:
    """What a log says at a cut.

    Attributes
    ----------
    rows
        What was added; None for nothing.
    is_all
        Whether nothing that was told before counts any more.
    facts
        What else is to be remembered; the newest counts.
    number, least
        The column by which rows are forgotten, and the least number that is needed.
    """

    rows: pl.DataFrame | None
    is_all: bool
    facts: dict[str, int] = field(default_factory=dict)
    number: str | None = None
    least: int | None = None


class FrameLog(Protocol):
    """What tells its state in this way."""

    def delta(self, since: int) -> LogDelta:
        """Return what was added after the stamp `since`; all of it after 0."""
        ...

    def begin_stamp(self, stamp: int, stored: int) -> None:
        """Count what comes from now on under this stamp; up to `stored` all is safe."""
        ...

    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        """Become what the logs of former tasks say."""
        ...


class FrameLogState:
    """Takes what a log says and makes segments of it, and the other way round."""

    def __init__(self, log: FrameLog, keys: tuple[str, ...], shard_count: int) -> None:
        self._log = log
        self._keys = keys
        self._shard_count = shard_count
        self._stamps = Stamps()
        self._begin()

    def capture(self, epoch: Epoch, since: Epoch) -> LogCapture:
        """Gather what came after `since`; Polars never changes it."""
        told = self._log.delta(self._stamps.after(since))
        self._stamps.cut(epoch)
        self._begin()
        return LogCapture(told, self._keys, self._shard_count)

    def complete(self, epoch: Epoch) -> None:
        """Forget the stamps of epochs before it."""
        self._stamps.complete(epoch)
        self._begin()

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:
        """Let the log become what the segments of every former task say."""
        by_task: dict[int, list[LogDelta]] = {}
        for segment in segments:
            assert segment.kind is SegmentKind.LOG, f"segment of kind {segment.kind}"
            told, keys = _decoded(segment.payload)
            told = _within(told, keys, shards, self._shard_count)
            by_task.setdefault(segment.task, []).append(told)
        self._log.begin_stamp(RESTORED, RESTORED)
        if by_task:
            self._log.restore_log([_joined(by_task[task]) for task in sorted(by_task)])
        self._begin()

    def close(self) -> None:
        """Do nothing: the operator owns the log."""

    def _begin(self) -> None:
        self._log.begin_stamp(self._stamps.now, self._stamps.stored)


@dataclass(frozen=True, slots=True)
class LogCapture:
    """What a log said."""

    told: LogDelta
    keys: tuple[str, ...]
    shard_count: int

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Encode it, whole."""
        payload = _encoded(self.told, self.keys)
        shards = 0, self.shard_count
        yield Segment(operator, task, SegmentKind.LOG, shards, payload)


def _encoded(told: LogDelta, keys: Sequence[str]) -> bytes:
    has_rows = told.rows is not None and told.rows.height > 0
    head = [told.is_all, told.facts, told.number, told.least, has_rows, list(keys)]
    packed: bytes = msgpack.packb(head)
    if not has_rows:
        return packed
    assert told.rows is not None
    return packed + encode_frame(told.rows, keys)


def _decoded(payload: bytes) -> tuple[LogDelta, list[str]]:
    unpacker = msgpack.Unpacker(io.BytesIO(payload))
    head: list[Any] = unpacker.unpack()
    is_all, facts, number, least, has_rows, keys = head
    rows = decode_frame(payload[unpacker.tell() :])[0] if has_rows else None
    return LogDelta(rows, is_all, facts, number, least), keys


def _within(
    told: LogDelta, keys: Sequence[str], shards: ShardRange, shard_count: int
) -> LogDelta:
    """Leave out the rows of other shards."""
    first, end = shards
    if told.rows is None or (first <= 0 and shard_count <= end):
        return told
    places = frame_shards(told.rows, keys, shard_count)
    rows = told.rows.filter(pl.Series((first <= places) & (places < end)))
    return LogDelta(rows, told.is_all, told.facts, told.number, told.least)


def _joined(logs: Sequence[LogDelta]) -> LogDelta:
    """Return what segments say one after the other."""
    begin = max((n for n, told in enumerate(logs) if told.is_all), default=0)
    newest = logs[-1]
    found = [told.rows for told in logs[begin:] if told.rows is not None]
    rows = pl.concat([f.select(found[-1].columns) for f in found]) if found else None
    if rows is not None and newest.number is not None and newest.least is not None:
        rows = rows.filter(pl.col(newest.number) >= newest.least)
    is_all = logs[begin].is_all
    return LogDelta(rows, is_all, newest.facts, newest.number, newest.least)


def _merged(segments: Sequence[Segment], merging: Merging) -> Iterator[Segment]:
    told = [_decoded(segment.payload) for segment in segments]
    joined, keys = _joined([log for log, _ in told]), tuple(told[-1][1])
    first = segments[0]
    capture = LogCapture(joined, keys, merging.shard_count)
    return capture.segments(first.operator, first.task)


register_merger(SegmentKind.LOG, _merged)
