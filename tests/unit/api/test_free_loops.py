"""Loops without rounds at their edges: when they end, and what goes round.

What they compute for any rows is in ``tests/property/test_iteration_properties.py``.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pytest

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Numbers = ms.Stream[int]

WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])
ON = pytest.mark.parametrize(
    "on", ["local", pytest.param("processes", marks=pytest.mark.slow)]
)


def counted_down(rows: Numbers) -> tuple[Numbers, Numbers]:
    lower = rows.map(lambda i: i - 1)
    return lower.filter(lambda i: i > 0), lower.filter(lambda i: i <= 0)


def counted_down_frame(rows: ms.Frame) -> tuple[ms.Frame, ms.Frame]:
    lower = rows.with_columns(pl.col("i") - 1)
    return lower.filter(pl.col("i") > 0), lower.filter(pl.col("i") <= 0)


def looped(flow: ms.Flow, start: list[int], kind: str, max_hops: int | None) -> Any:
    if kind == "rows":
        return flow.from_iterable(start).loop(counted_down, max_hops=max_hops)
    frame = flow.from_frame(pl.DataFrame({"i": start}, schema={"i": pl.Int64}))
    return frame.loop(counted_down_frame, max_hops=max_hops).to_rows()


@WORKERS
@pytest.mark.parametrize("kind", ["rows", "frame"])
@pytest.mark.parametrize("start", [[], [1], [4, 1, 9]], ids=str)
def test_a_bounded_loop_ends_when_nothing_is_left_in_it(
    start: list[int], kind: str, workers: int
) -> None:
    """As rows and as data frames; everything leaves once."""
    flow = ms.Flow("loop")
    out = looped(flow, start, kind, None).collect()

    flow.run(on="local", workers=workers)

    assert len(out.result()) == len(start)


@ON
@pytest.mark.parametrize("kind", ["rows", "frame"])
def test_the_hop_limit_is_reached_but_not_passed(
    kind: str, on: Literal["local", "processes"]
) -> None:
    """A record that starts at ten goes round nine times."""
    reached = ms.Flow("reached")
    out = looped(reached, [10, 3], kind, 9).collect()
    reached.run(on=on, workers=2)
    assert len(out.result()) == 2

    passed = ms.Flow("passed")
    looped(passed, [11, 3], kind, 9).collect()
    with pytest.raises(
        ms.OperatorError, match="went round 10 times, and max_hops is 9"
    ) as raised:
        passed.run(on=on, workers=2)
    assert raised.value.operator == "loop"
    assert raised.value.location.startswith("test_free_loops.py:")


def test_what_leaves_a_loop_of_frames_may_have_other_columns() -> None:
    """Only what goes round again must look like the input."""
    flow = ms.Flow("columns")
    start = flow.from_frame(pl.DataFrame({"i": [3, 5]}))

    def body(rows: ms.Frame) -> tuple[ms.Frame, ms.Frame]:
        again, out = counted_down_frame(rows)
        return again, out.select(done=pl.col("i") == 0)

    out = start.loop(body).collect()
    flow.run(on="local", workers=2)

    assert out.result().to_dict(as_series=False) == {"done": [True, True]}


@WORKERS
def test_synchronous_snapshots_do_not_stop_a_loop(workers: int, tmp_path: Path) -> None:
    """The barrier comes round to a head whose readers have paused, however full."""
    flow = ms.Flow("synchronous")
    out = looped(flow, [30] * 60, "rows", None).collect()

    job = flow.start(
        on="local",
        workers=workers,
        state=tmp_path / "state",
        snapshot_every="10ms",
        snapshot_mode="synchronous",
        buffer=ms.fixed(4),
        local_channel_batches=1,
        source_batch_rows=8,
    )

    assert job.wait(timeout_s=60)
    assert len(out.result()) == 60
    assert job.snapshots()


def endless(rank: int, size: int) -> Iterator[int]:
    return count(rank, size)


@ON
@pytest.mark.parametrize("workers", [1, 3])
def test_a_limit_behind_a_loop_ends_it_though_its_input_does_not(
    workers: int, on: Literal["local", "processes"]
) -> None:
    """Nobody reads what would leave, and those who go round learn of it."""
    flow = ms.Flow("enough")
    small = flow.from_parallel(endless).map(lambda i: 3 + i % 5)
    out = small.loop(counted_down).limit(7).collect()

    flow.run(on=on, workers=workers)

    assert out.result() == [0] * 7


@WORKERS
def test_a_limit_behind_a_loop_ends_what_goes_round_for_ever(workers: int) -> None:
    """The input is over, but the loop never becomes quiet."""
    flow = ms.Flow("ticking")
    start = flow.from_iterable([1, 2])
    out = start.loop(lambda rows: (rows, rows)).limit(50).collect()

    flow.run(on="local", workers=workers)

    assert len(out.result()) == 50


def test_a_loop_goes_on_while_anybody_reads_what_leaves_it() -> None:
    """One reader has enough, the other one wants all."""
    flow = ms.Flow("two-readers")
    left, right = flow.from_iterable([5] * 100).loop(counted_down).split(2)
    some, everything = left.limit(1).collect(), right.collect()

    flow.run(on="local", workers=2)

    assert (len(some.result()), len(everything.result())) == (1, 100)


def test_a_loop_that_leaves_on_one_worker_goes_on_there() -> None:
    """On the other workers there is nothing that anybody could read."""
    flow = ms.Flow("narrow")

    def body(rows: Numbers) -> tuple[Numbers, Numbers]:
        lower = rows.map(lambda i: i - 1).max_parallelism(1)
        return lower.filter(lambda i: i > 0), lower.filter(lambda i: i <= 0)

    out = flow.from_iterable([4] * 20).loop(body).collect()
    flow.run(on="local", workers=3)

    assert out.result() == [0] * 20


@WORKERS
def test_an_iteration_whose_result_nobody_reads_ends(workers: int) -> None:
    """Before its first round if its input goes on, and after the round under way."""
    flow = ms.Flow("unread")
    ending = flow.from_parallel(lambda rank, size: range(rank, 30, size))
    waiting = flow.from_parallel(endless, name="endless").iterate(
        lambda rows: rows.map(lambda i: i * 2), max_rounds=2
    )
    for_ever = flow.from_iterable([1]).cycle(
        0, lambda rows, _: rows, lambda state, _: state + 1, until=lambda _: False
    )
    out = ending.merge(waiting).merge(for_ever).limit(3).collect()

    flow.run(on="local", workers=workers)

    assert len(out.result()) == 3


class Hoard(ms.StatefulFunction[int, int, int]):
    """Gives nothing until there is no more; then what it has, made smaller by one."""

    kept = ms.ListState[int]()

    def on_record(self, key: int, value: int) -> list[int]:
        del key
        if value <= 0:
            return [value]
        self.kept.append(value)
        return []

    def on_end(self, key: int) -> list[int]:
        del key
        return [value - 1 for value in self.kept.get()]


@ON
@pytest.mark.parametrize("workers", [1, 3])
def test_what_follows_from_the_end_goes_round_like_all_else(
    workers: int, on: Literal["local", "processes"]
) -> None:
    """Every lap but the first begins with `on_end`; none of its rows is lost."""
    flow = ms.Flow("hoard")

    def body(rows: Numbers) -> tuple[Numbers, Numbers]:
        made = rows.key_by(lambda i: i % 3).process(Hoard()).drop_key()
        return (
            made.filter(lambda i: i > 0).map(lambda i: i),
            made.filter(lambda i: i <= 0),
        )

    numbers = flow.from_parallel(lambda rank, size: range(rank, 40, size))
    out = numbers.map(lambda i: i % 4).loop(body).collect()
    flow.run(on=on, workers=workers)

    # What is on its way with a zero left before; the others leave from `on_end`.
    assert sorted(out.result()) == [0] * 40


def test_looks_at_a_free_loop_are_no_rounds() -> None:
    """People would take them for such."""
    flow = ms.Flow("looks")
    looped(flow, [3], "rows", None).collect()

    job = flow.run(on="local")

    assert [stage.rounds for stage in job.metrics() if stage.rounds is not None] == []
