"""Joins of two frames by hand: limits, early ends, order, and large right sides."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.support.making import operators

import millstream as ms
from millstream.config import Config, configured
from millstream.plan.frames import JoinFrames

LEFT = pl.DataFrame({"k": [3, 1, 2], "x": ["c", "a", "b"]})
RIGHT = pl.DataFrame({"k": [1, 2], "y": [10, 20]})


def _spec(how: str = "inner") -> JoinFrames:
    return JoinFrames(("k",), ("k",), how, RIGHT.schema)


def _operator(how: str = "inner", **settings: int) -> Any:
    (operator,) = operators([_spec(how)], configured(Config(), dict(settings)))
    return operator


def test_left_rows_wait_until_the_right_side_is_complete() -> None:
    """Then the oldest come first, and each batch lets one more go."""
    join = _operator()
    waited = [join.process(piece, 0) for piece in (LEFT[:1], LEFT[1:2], LEFT[1:2])]
    join.process(RIGHT, 1)
    join.on_input_end(1)

    made = join.process(LEFT[2:], 0)

    assert [len(rows) for rows in waited] == [0, 0, 0]
    assert made.rows() == [(1, "a", 10)]
    assert [rows.rows() for rows in join.finish()] == [[(1, "a", 10)], [(2, "b", 20)]]


@pytest.mark.parametrize(
    ("how", "is_satisfied"),
    [("inner", True), ("semi", True), ("left", False), ("anti", False)],
)
def test_join_with_nothing_ends_early_where_rows_need_a_partner(
    how: str, *, is_satisfied: bool
) -> None:
    """So the sources of the left side stop too."""
    join = _operator(how)
    before = join.is_satisfied
    join.on_input_end(1)

    assert not before
    assert join.is_satisfied is is_satisfied


def test_right_side_above_the_limit_fails_with_what_to_do() -> None:
    """Before it fills the memory of every worker."""
    flow = ms.Flow("large")
    right = flow.from_frame(pl.DataFrame({"k": range(1000), "y": range(1000)}))
    flow.from_frame(LEFT).join(right, "k").collect()

    with pytest.raises(ms.OperatorError, match="'join_right_bytes_max'") as failed:
        flow.run(on="local", workers=2, join_right_bytes_max=5000)

    assert "more than 5000 bytes" in str(failed.value)
    assert "smaller frame on the right" in str(failed.value)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("kind", [pl.Int64, pl.String, pl.Float64, pl.Categorical])
def test_right_side_longer_than_a_batch_is_looked_up(how: Any, kind: Any) -> None:
    """With the same rows: null matches nothing, keys may repeat."""
    numbers = [i * 7 % 500 for i in range(3000)]
    keys = pl.Series("k", [*numbers, None]).cast(pl.String).cast(kind)
    right = pl.DataFrame([keys, pl.Series("y", range(3001))])
    left = pl.DataFrame([keys.gather([0, 5, 5, 3000, 17])])
    flow = ms.Flow("long")
    result = flow.from_frame(left).join(right, "k", how=how).collect()
    flow.run(on="local")

    expected = left.join(right, on="k", how=how, maintain_order="left_right")
    by = [c for c in expected.columns if c == "y"] or ["k"]
    assert result.result().sort(by).equals(expected.sort(by))


def test_join_of_sorted_rows_keeps_them_in_order() -> None:
    """The join stays where the sorted rows are, at any number of workers."""
    numbers = pl.DataFrame({"k": [i * 37 % 101 for i in range(101)]})
    flow = ms.Flow("sorted")
    right = flow.from_frame(pl.DataFrame({"k": range(0, 101, 2)}))
    result = flow.from_frame(numbers).sort("k").join(right, "k").collect()
    flow.run(on="local", workers=3, frame_buffer=ms.fixed(7))

    assert result.result()["k"].to_list() == list(range(0, 101, 2))


def test_two_frames_may_be_the_right_side_of_each_other() -> None:
    """Both are read from sources that must not stop while the other is awaited."""
    flow = ms.Flow("crossed")
    one = flow.from_frame(pl.DataFrame({"k": range(5000)}))
    other = flow.from_frame(pl.DataFrame({"k": range(0, 5000, 2)}))
    first = one.join(other, "k", how="semi").collect()
    second = other.join(one, "k", how="anti").collect()
    flow.run(
        on="local",
        workers=2,
        frame_buffer=ms.fixed(10),
        local_channel_batches=1,
        channel_credit_bytes=100,
        join_left_memory_bytes=1000,
    )

    assert first.result().height == 2500
    assert second.result().height == 0


def test_names_of_both_sides_are_told_apart_by_the_suffix() -> None:
    """Keys of other names on the right are left out, as Polars does."""
    right = pl.DataFrame({"id": [1, 2], "x": ["A", "B"]})
    flow = ms.Flow("names")
    begun, other = flow.from_frame(LEFT), flow.from_frame(right)
    joined = begun.join(other, left_on="k", right_on="id", suffix=".r", how="left")
    result = joined.collect()
    flow.run(on="local")

    assert result.result().columns == ["k", "x", "x.r"]
    assert sorted(result.result().rows(), key=str) == [
        (1, "a", "A"),
        (2, "b", "B"),
        (3, "c", None),
    ]
