"""How state by key in data frames is stored: rows as an Arrow stream, by shard.

A frame has a row per key: the key columns and whatever is kept.  Where a key comes
again in a later segment, the later row counts; frames know no deletions.

The shard of a row comes from Polars' own hash, which another version may compute
otherwise; a fingerprint of the hash is stored with the rows, and rows with another one
are refused.  Nothing here knows operators, epochs or files.
"""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import polars as pl

from millstream.errors import SnapshotError
from millstream.state.base import Segment, SegmentKind
from millstream.state.batches import own_lock
from millstream.state.compaction import register_merger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.state.base import ShardRange
    from millstream.state.compaction import Merging

__all__ = [
    "decode_frame",
    "encode_frame",
    "frame_segments",
    "frame_shards",
    "frame_within",
    "hash_fingerprint",
]

_HASH_SEED = 0x6D73
"""Any number, but the same in every process of a job."""

_SEGMENT_ROWS_MIN = 4096
"""Fewer rows share a segment with those of the next shards."""


def frame_shards(
    rows: pl.DataFrame, keys: Sequence[str], shard_count: int
) -> NDArray[np.intp]:
    """Return the shard of the key in every row."""
    hashes = rows.select(keys).hash_rows(_HASH_SEED).to_numpy()
    high = hashes >> np.uint64(32)
    return (high * np.uint64(shard_count) >> np.uint64(32)).astype(np.intp)


@cache
def hash_fingerprint() -> int:
    """Return a number that changes when Polars hashes a few plain values otherwise."""
    probe = pl.DataFrame(
        {"i": [0, 1, None], "s": ["", "mill", None], "f": [0.0, 1.5, None]}
    )
    hashes = [probe.select(name).hash_rows(_HASH_SEED) for name in probe.columns]
    hashes.append(probe.hash_rows(_HASH_SEED))
    return int(np.bitwise_xor.reduce(np.concatenate([h.to_numpy() for h in hashes])))


def encode_frame(frame: pl.DataFrame, keys: Sequence[str]) -> bytes:
    """Return the payload of a frame with these key columns.

    Examples
    --------
    >>> payload = encode_frame(pl.DataFrame({"word": ["mill"], "sum": [3]}), ["word"])
    >>> frame, keys = decode_frame(payload)
    >>> frame.rows(), keys
    ([('mill', 3)], ['word'])
    """
    stream = io.BytesIO()
    msgpack.pack({"hash": hash_fingerprint(), "keys": list(keys)}, stream)
    own_lock(frame).write_ipc_stream(stream)
    return stream.getvalue()


def decode_frame(payload: bytes) -> tuple[pl.DataFrame, list[str]]:
    """Return the frame and its key columns."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(payload)
    header: dict[str, Any] = unpacker.unpack()
    if header["hash"] != hash_fingerprint():
        msg = (
            f"state of frames was stored by a version of Polars that hashes keys in "
            f"another way than {pl.__version__}, which is installed; go on with the "
            "version it was stored with"
        )
        raise SnapshotError(msg)
    rest = io.BytesIO(payload)
    rest.seek(unpacker.tell())
    return pl.read_ipc_stream(rest), header["keys"]


def frame_within(
    segment: Segment, shards: ShardRange, shard_count: int
) -> pl.DataFrame | None:
    """Return the rows of a segment whose keys lie in these shards; None if it has none."""
    assert segment.kind is SegmentKind.FRAME, f"segment of kind {segment.kind}"
    first, end = shards
    segment_first, segment_end = segment.shards
    if segment_end <= first or end <= segment_first:
        return None
    frame, keys = decode_frame(segment.payload)
    if not (first <= segment_first and segment_end <= end):
        places = frame_shards(frame, keys, shard_count)
        frame = frame.filter(pl.Series((first <= places) & (places < end)))
    return None if frame.is_empty() else frame


def frame_segments(
    operator: str,
    task: int,
    frame: pl.DataFrame,
    keys: Sequence[str],
    shard_count: int,
) -> Iterator[Segment]:
    """Yield the segments of a frame, whole shards in each."""
    if frame.is_empty():
        return
    shards = frame_shards(frame, keys, shard_count)
    order = np.argsort(shards, kind="stable")
    frame, shards = frame[order], shards[order]
    starts = np.flatnonzero(np.diff(shards, prepend=-1)).tolist()
    begin = 0
    for end in [*starts[1:], len(shards)]:
        if end - begin >= _SEGMENT_ROWS_MIN or end == len(shards):
            between = int(shards[begin]), int(shards[end - 1]) + 1
            payload = encode_frame(frame[begin:end], keys)
            yield Segment(operator, task, SegmentKind.FRAME, between, payload)
            begin = end


def _merged(segments: Sequence[Segment], merging: Merging) -> Iterator[Segment]:
    """Keep the newest row of every key."""
    told = [decode_frame(segment.payload) for segment in segments]
    keys = told[-1][1]
    rows = pl.concat([frame.select(told[-1][0].columns) for frame, _ in told])
    newest = rows.group_by(keys).agg(pl.all().last())
    first = segments[0]
    return frame_segments(first.operator, first.task, newest, keys, merging.shard_count)


register_merger(SegmentKind.FRAME, _merged)
