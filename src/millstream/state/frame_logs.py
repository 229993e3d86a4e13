"""State that is several logs of data frames at once, such as the two sides of a join.

The logs are cut together and stored in one segment; what a log is, `state.frame_log`
says.  Nothing here knows what the logs are for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgpack

from millstream.state.base import Segment, SegmentKind
from millstream.state.compaction import merged, register_merger
from millstream.state.frame_log import FrameLogState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.protocol.ids import Epoch
    from millstream.state.base import Capture, ShardRange
    from millstream.state.compaction import Merging
    from millstream.state.frame_log import FrameLog

__all__ = ["FrameLogsState"]


class FrameLogsState:
    """Several logs, each with the names of its key columns.

    Parameters
    ----------
    on_restored
        Called after each time that something was restored.
    """

    def __init__(
        self,
        logs: Sequence[tuple[FrameLog, tuple[str, ...]]],
        shard_count: int,
        on_restored: Callable[[], None],
    ) -> None:
        self._logs = [FrameLogState(log, keys, shard_count) for log, keys in logs]
        self._on_restored = on_restored

    def capture(self, epoch: Epoch, since: Epoch) -> LogsCapture:
        """Capture all of them."""
        return LogsCapture([log.capture(epoch, since) for log in self._logs])

    def complete(self, epoch: Epoch) -> None:
        """Tell all of them."""
        for log in self._logs:
            log.complete(epoch)

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:
        """Give each what is its own."""
        parts = [_parts(segment) for segment in segments]
        for log, own in zip(self._logs, zip(*parts, strict=True), strict=False):
            log.restore(own, shards)
        self._on_restored()

    def close(self) -> None:
        """Do nothing: the operator owns the logs."""


@dataclass(frozen=True, slots=True)
class LogsCapture:
    """What the logs said."""

    captures: Sequence[Capture]

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Encode it as one segment."""
        return _together([c.segments(operator, task) for c in self.captures])


def _together(logs: Iterable[Iterable[Segment]]) -> Iterator[Segment]:
    """Put the only segment of every log into one."""
    segments = [segment for (segment,) in logs]
    payload = msgpack.packb([segment.payload for segment in segments])
    yield replace(segments[0], kind=SegmentKind.LOGS, payload=payload)


def _parts(segment: Segment) -> list[Segment]:
    """Return the segments of the logs."""
    assert segment.kind is SegmentKind.LOGS, f"segment of kind {segment.kind}"
    payloads: list[bytes] = msgpack.unpackb(segment.payload)
    return [replace(segment, kind=SegmentKind.LOG, payload=p) for p in payloads]


def _merged(segments: Sequence[Segment], merging: Merging) -> Iterator[Segment]:
    parts = zip(*(_parts(segment) for segment in segments), strict=True)
    return _together(merged(own, merging) for own in parts)


register_merger(SegmentKind.LOGS, _merged)
