"""One base out of a base and the deltas after it, made from the files alone.

It runs beside the job, in the background, on files that nobody changes: the live state
is not touched.  How segments of a kind are merged is registered here; how they are
encoded is known by the module that registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import LocalProtocolError
from millstream.state.base import Segment, SegmentKind
from millstream.state.kept_batches import ANEW
from millstream.state.row_merging import merged_rows
from millstream.state.turns import give_way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.state.base import ShardRange
    from millstream.state.manifest import FileRef
    from millstream.state.store import SnapshotStore

    Merger = Callable[[Sequence[Segment], "Merging"], Iterable[Segment]]

__all__ = ["Merging", "compacted", "merged", "register_merger"]


class Merging(NamedTuple):
    """What is known about the segments to merge, besides themselves.

    Attributes
    ----------
    is_base
        Whether they begin with everything, so that deletions have done their work once
        they are merged.
    """

    shard_count: int
    is_base: bool


def compacted(
    refs: Sequence[FileRef],
    store: SnapshotStore,
    shards: ShardRange,
    shard_count: int,
) -> Iterator[Segment]:
    """Return the segments of a base that says what these files say one after the other.

    Parameters
    ----------
    refs
        Files in the order in which they apply.
    shards
        Segments that lie outside are left out.
    """
    groups: dict[tuple[str, int, SegmentKind], list[Segment]] = {}
    for ref in refs:
        for segment in store.read_segments(ref):
            if segment.shards[0] < shards[1] and shards[0] < segment.shards[1]:
                group = (segment.operator, segment.task, segment.kind)
                groups.setdefault(group, []).append(segment)
        give_way()
    merging = Merging(shard_count, is_base=bool(refs) and refs[0].is_base)
    for group in sorted(groups):
        yield from merged(groups.pop(group), merging)


def merged(segments: Sequence[Segment], merging: Merging) -> Iterable[Segment]:
    """Merge the segments of one operator, task and kind, in the order they apply."""
    kind = segments[0].kind
    if kind not in _MERGERS:
        msg = f"nothing was registered to merge segments of kind {kind.value!r}"
        raise LocalProtocolError(msg)
    return _MERGERS[kind](segments, merging)


def register_merger(kind: SegmentKind, merger: Merger) -> None:
    """Say how segments of a kind are merged."""
    _MERGERS[kind] = merger


def _merged_rows(segments: Sequence[Segment], merging: Merging) -> Iterator[Segment]:
    return merged_rows(segments, merging.shard_count, is_base=merging.is_base)


def _newest(segments: Sequence[Segment], merging: Merging) -> list[Segment]:  # noqa: ARG001
    return [segments[-1]]


def _since_anew(segments: Sequence[Segment], merging: Merging) -> list[Segment]:  # noqa: ARG001
    """Leave out what a list of batches that was begun anew no longer has."""
    last = [n for n, segment in enumerate(segments) if segment.payload[:1] == ANEW]
    return list(segments[last[-1] :] if last else segments)


_MERGERS: dict[SegmentKind, Merger] = {
    SegmentKind.ROWS: _merged_rows,
    SegmentKind.TASK: _newest,
    SegmentKind.SHARED: _newest,
    SegmentKind.BATCHES: _since_anew,
}
