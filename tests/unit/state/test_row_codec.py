"""Payloads of rows: what is pickled when, and what merging keeps."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from millstream.state.base import Segment, SegmentKind
from millstream.state.row_codec import (
    DELETED,
    SEGMENT_ROWS_MAX,
    Frozen,
    decode_rows,
    encode_rows,
    frozen_values,
    rows_within,
    segments_by_shard,
)


def test_deleted_is_the_same_object_everywhere() -> None:
    """A restore compares by identity."""
    assert pickle.loads(pickle.dumps(DELETED)) is DELETED


@pytest.mark.parametrize(
    "value", [True, b"x", 1.5, 7, "x", None, (1, "x"), frozenset({1}), DELETED, ((1,),)]
)
def test_immutable_value_is_captured_by_reference(value: object) -> None:
    """Pickling at the cut is time that the task stands still."""
    assert frozen_values(["k", "l"], [value, []])[0] is value


@pytest.mark.parametrize("value", [[], [1, "x"], {}, {"x": (1, 2)}, {1}])
def test_flat_container_is_copied(value: Any) -> None:
    """A copy takes a tenth of the time, and names of fields are then stored once."""
    (frozen,) = frozen_values(["k"], [value])

    assert frozen == value
    assert frozen is not value
    assert type(frozen) is type(value)


@pytest.mark.parametrize(
    "value", [[[]], {1: []}, {1: (2, [])}, (1, []), ((1, []),), bytearray()]
)
def test_value_that_may_change_is_pickled(value: object) -> None:
    """A tuple is as changeable as what is in it."""
    (frozen,) = frozen_values(["k"], [value])

    assert isinstance(frozen, Frozen)
    assert decode_rows(encode_rows(["k"], [frozen])) == [("k", value)]


def test_large_shard_is_spread_over_segments() -> None:
    """Encoding a segment must not need memory for all of the state."""
    rows = ((7, (number, 0)) for number in range(SEGMENT_ROWS_MAX + 1))

    segments = list(segments_by_shard("sum", 3, rows))

    assert [segment.shards for segment in segments] == [(7, 8), (7, 8)]
    assert segments[1] == Segment(
        "sum", 3, SegmentKind.ROWS, (7, 8), encode_rows([SEGMENT_ROWS_MAX], [0])
    )


def test_segment_of_other_shards_is_not_even_decoded() -> None:
    """A task that restores reads past what belongs to others."""
    segment = Segment("sum", 0, SegmentKind.ROWS, (4, 8), b"no pickle")

    assert rows_within(segment, (0, 4), 16) == []
    assert rows_within(segment, (8, 16), 16) == []
    with pytest.raises(pickle.UnpicklingError):
        rows_within(segment, (7, 8), 16)
