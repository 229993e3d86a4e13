"""Rows of many segments merged into those of one base, some shards at a time.

A worker's state may have millions of rows, and its tasks go on meanwhile: so there are never
more rows in memory than those of a few shards, and cuts are given way between two of these
steps.  Nothing here knows where segments come from.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from millstream.state.keyhash import shards_of
from millstream.state.row_codec import DELETED, decode_rows, sharded_segments
from millstream.state.turns import collecting_no_garbage, give_way

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from millstream.state.base import Segment
    from millstream.values import Entries, Pair


__all__ = ["merged_rows"]

STEP_BYTES = 1 << 18
"""Payloads of one step, at least; a few thousand rows."""


def merged_rows(
    segments: Sequence[Segment], shard_count: int, *, is_base: bool
) -> Iterator[Segment]:
    """Yield segments that say what these say one after the other; the later one wins.

    Parameters
    ----------
    is_base
        Whether they begin with everything, so that nobody need know what was deleted.
    """
    parts = [_Part(place, each, shard_count) for place, each in enumerate(segments)]
    coming = sorted(parts, key=lambda part: part.shards[0], reverse=True)
    present: list[_Part] = []
    for end in _ends(segments):
        while coming and coming[-1].shards[0] < end:
            present.append(coming.pop())
        present.sort(key=attrgetter("place"))
        with collecting_no_garbage():
            rows = _joined(present, end, is_base=is_base)
        present = [part for part in present if not part.is_used_up]
        keys, values = list(rows), list(rows.values())
        first = segments[0]
        yield from sharded_segments(
            first.operator, first.task, keys, values, shard_count
        )
        give_way()


def _ends(segments: Sequence[Segment]) -> Iterator[int]:
    """Yield where the steps end: after some bytes, and never within a shard."""
    begin, weight = -1, 0
    for segment in sorted(segments, key=lambda segment: segment.shards):
        first = segment.shards[0]
        if weight >= STEP_BYTES and first > begin:
            yield first
            weight = 0
        if weight == 0:
            begin = first
        weight += len(segment.payload)
    yield max(segment.shards[1] for segment in segments)


def _joined(parts: list[_Part], end: int, *, is_base: bool) -> Entries:
    rows: Entries = {}
    for part in parts:
        rows.update(part.taken(end))
        give_way()
    if is_base:
        rows = {key: value for key, value in rows.items() if value is not DELETED}
    return rows


class _Part:
    """What has not been taken of one segment."""

    def __init__(self, place: int, segment: Segment, shard_count: int) -> None:
        self.place = place
        self.shards = segment.shards
        self.is_used_up = False
        self._payload = segment.payload
        self._shard_count = shard_count
        #: Decoded and in the order of shards, if the segment reaches beyond a step.
        self._rows: list[Pair] | None = None
        self._found: npt.NDArray[np.int64] | None = None
        self._begin = 0

    def taken(self, end: int) -> list[Pair]:
        """Return the rows of the shards before `end` that were not taken before."""
        if self._rows is None and self.shards[1] <= end:
            self.is_used_up = True
            return decode_rows(self._payload)
        if self._rows is None:
            self._rows = decode_rows(self._payload)
            found = shards_of([key for key, _ in self._rows], self._shard_count)
            order = found.argsort(kind="stable")
            self._rows = [self._rows[place] for place in order.tolist()]
            self._found = found[order]
        assert self._found is not None
        begin, self._begin = self._begin, int(self._found.searchsorted(end))
        self.is_used_up = self._begin == len(self._rows)
        return self._rows[begin : self._begin]
