"""State files: segments come back as they were, and malformed bytes are refused."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SnapshotError
from millstream.state.base import ALL_SHARDS, Segment, SegmentKind
from millstream.state.segments import decoded_segments, encoded_segments

SEGMENTS = st.lists(
    st.builds(
        Segment,
        operator=st.text(max_size=20),
        task=st.integers(0, 2**31),
        kind=st.sampled_from(SegmentKind),
        shards=st.tuples(st.integers(0, 1024), st.integers(0, 2**32)),
        payload=st.binary(max_size=200),
    )
)
START = b"MSSF\x00\x01"


def with_header(*fields: object, payload: bytes = b"") -> bytes:
    header = bytes(msgpack.packb(fields))
    return START + struct.pack(">I", len(header)) + header + payload


@given(SEGMENTS)
def test_segments_come_back_as_they_were(segments: list[Segment]) -> None:
    """Whatever is in a payload."""
    assert decoded_segments(b"".join(encoded_segments(segments))) == segments


def test_large_payload_is_not_copied() -> None:
    """It is handed on as it is, behind its header."""
    payload = bytes(1_000_000)
    segment = Segment("sum", 0, SegmentKind.ROWS, ALL_SHARDS, payload)
    assert any(chunk is payload for chunk in encoded_segments([segment]))


@given(SEGMENTS.filter(bool), st.data())
def test_cut_off_file_is_refused_or_shorter(
    segments: list[Segment], data: st.DataObject
) -> None:
    """Nothing but whole segments ever comes out of a part of a file."""
    encoded = b"".join(encoded_segments(segments))
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    try:
        found = decoded_segments(cut)
    except SnapshotError:
        return
    assert found == segments[: len(found)]
    assert len(found) < len(segments)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_a_snapshot_error(data: bytes) -> None:
    """A malformed file cannot end a worker in any other way."""
    for each in (data, START + data):
        with suppress(SnapshotError):
            decoded_segments(each)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"MS", "it has 2 bytes"),
        (b"PK\x03\x04\x00\x01", "begins with"),
        (b"MSSF\x00\x02", "version 2"),
        (START + b"\0", "ends inside a header"),
        (START + b"\xff\xff\xff\xff", "claims 4294967295 bytes"),
        (START + struct.pack(">I", 1) + b"\xc1", "cannot be read"),
        (with_header("sum", 0, "rows", 0, 1), "cannot be read"),
        (with_header("sum", 0, "evil", 0, 1, 0), "cannot be read"),
        (with_header(b"sum", 0, "rows", 0, 1, 0), "cannot be read"),
        (with_header("sum", 0.0, "rows", 0, 1, 0), "cannot be read"),
        (with_header("sum", -1, "rows", 0, 1, 0), "cannot be read"),
        (with_header("sum", 0, "rows", 0, 1, 4, payload=b"abc"), "claims 4 bytes"),
    ],
)
def test_malformed_file_is_refused(data: bytes, complaint: str) -> None:
    """The sentence says what is wrong with it."""
    with pytest.raises(SnapshotError, match=complaint):
        decoded_segments(data)


def test_claimed_length_is_not_allocated() -> None:
    """Ten gigabytes that are not there cost nothing."""
    data = with_header("sum", 0, "rows", 0, 1, 10 * 2**30)
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotError, match="claims 10737418240 bytes"):
            decoded_segments(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_endless_operator_name_is_refused_when_it_is_written() -> None:
    """What is written can be read back."""
    segment = Segment("x" * 70_000, 0, SegmentKind.TASK, ALL_SHARDS, b"")
    with pytest.raises(SnapshotError, match="70000 characters"):
        list(encoded_segments([segment]))
