"""Payloads of rows: what is encoded when, and what merging keeps."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from millstream.errors import SnapshotError
from millstream.state.base import Segment, SegmentKind
from millstream.state.nan import NAN
from millstream.state.row_codec import (
    DELETED,
    SEGMENT_ROWS_MAX,
    encode_rows,
    fixed_values,
    rows_within,
    segments_by_shard,
)


def test_deleted_is_the_same_object_everywhere() -> None:
    """A restore compares by identity."""
    assert pickle.loads(pickle.dumps(DELETED)) is DELETED


@pytest.mark.parametrize(
    "value",
    [True, b"x", 1.5, 7, "x", None, NAN, (1, "x"), frozenset({1}), DELETED, ((1,),)],
)
def test_immutable_value_is_captured_by_reference(value: object) -> None:
    """Encoding at the cut is time that the task stands still."""
    (fixed, _) = fixed_values([value, []]) or ()

    assert fixed is value


@pytest.mark.parametrize("other", [None, [3]])
@pytest.mark.parametrize("value", [[], [1, "x"], {}, {"x": (1, 2)}, {1}])
def test_flat_container_is_copied(value: Any, other: Any) -> None:
    """A copy takes a tenth of the time, also of one that is not like the others."""
    (fixed, *_) = fixed_values([value] if other is None else [value, other]) or ()

    assert fixed == value
    assert fixed is not value
    assert type(fixed) is type(value)


OPEN = [[[]], {1: []}, {1: (2, [])}, (1, []), ((1, []),), bytearray()]


@pytest.mark.parametrize("before", [0, 100])
@pytest.mark.parametrize("value", OPEN)
def test_value_that_may_change_is_no_fixed_one(value: object, before: int) -> None:
    """A tuple is as changeable as what is in it, wherever it is among many."""
    assert fixed_values([1] * before + [value]) is None
    assert fixed_values([[]] * before + [value]) is None


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
    segment = Segment("sum", 0, SegmentKind.ROWS, (4, 8), b"no value")

    assert rows_within(segment, (0, 4), 16) == []
    assert rows_within(segment, (8, 16), 16) == []
    with pytest.raises(SnapshotError, match="begins with b'n'"):
        rows_within(segment, (7, 8), 16)
