"""event_time: who is late depends on the records of a split and on nothing else.

Method: Hypothesis draws timestamps by split, how they are cut into batches, in which
order splits are read, and where the operator is stopped and restored.  The oracle looks
at one record of one split after the other.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.making import node, nodes

from millstream.operators.time.assign import (
    AssignTimestampsOperator,
    SortByTimeOperator,
)
from millstream.plan.time import AssignTime, InTimeOrder, LateTimestamp
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import BEGINNING
from millstream.state.table import PlainTable
from millstream.testing import ManualClock

TIMES = st.lists(st.integers(-30, 30), max_size=12)
SPLITS = st.lists(TIMES, min_size=1, max_size=3)


def assigned(out_of_order: int) -> AssignTimestampsOperator:
    spec = AssignTime(lambda row: row, out_of_order)
    return AssignTimestampsOperator((node(spec),), 0, ManualClock())


def stored(
    operator: AssignTimestampsOperator, out_of_order: int
) -> AssignTimestampsOperator:
    """Return an operator that goes on where another one was cut."""
    assert operator.state is not None
    fresh = assigned(out_of_order)
    capture = operator.state.capture(Epoch(1), Epoch(0))
    assert fresh.state is not None
    fresh.state.restore(capture.segments("event_time", 0), (0, 1024))
    return fresh


def promised(times: list[int], out_of_order: int) -> list[tuple[int, int | None]]:
    """Return every timestamp, and what had been promised where that was more."""
    made: list[tuple[int, int | None]] = []
    promise = BEGINNING
    for time in times:
        made.append((time, promise if time <= promise else None))
        promise = max(promise, time - out_of_order - 1)
    return made


@given(SPLITS, st.integers(0, 8), st.data())
def test_lateness_is_that_of_the_split_alone(
    splits: list[list[int]], out_of_order: int, data: st.DataObject
) -> None:
    """Batches may end anywhere, splits take turns, and a crash changes nothing."""
    operator = assigned(out_of_order)
    left = {f"split {i}": list(times) for i, times in enumerate(splits)}
    found: dict[str, list[tuple[int, int | None]]] = {name: [] for name in left}
    while any(left.values()):
        name = data.draw(st.sampled_from([n for n, rest in left.items() if rest]))
        size = data.draw(st.integers(1, len(left[name])))
        batch, left[name] = left[name][:size], left[name][size:]
        operator.origin = name
        for time, row in operator.process(batch):
            behind = time.watermark if isinstance(time, LateTimestamp) else None
            assert time == row
            found[name].append((int(time), behind))
        if data.draw(st.booleans()):
            operator = stored(operator, out_of_order)

    assert found == {
        f"split {i}": promised(times, out_of_order) for i, times in enumerate(splits)
    }


@given(SPLITS, st.integers(0, 8))
def test_watermark_is_the_least_that_any_split_promises(
    splits: list[list[int]], out_of_order: int
) -> None:
    """A split that nothing came from has promised nothing."""
    operator = assigned(out_of_order)
    names = [f"split {i}" for i in range(len(splits))]
    for name, times in zip(names, splits, strict=True):
        if times:
            operator.origin = name
            operator.process(times)
    given_time = operator.due(names, 1)

    least = min(max(times, default=BEGINNING + out_of_order + 1) for times in splits)
    if all(splits):
        assert given_time is not None
        assert given_time.time == least - out_of_order - 1
    else:
        assert given_time is None


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 9)), max_size=20),
    st.lists(st.integers(-10, 10), max_size=4),
)
def test_rows_leave_in_the_order_of_their_time(
    rows: list[tuple[str, int]], watermarks: list[int]
) -> None:
    """Every row leaves once its time has come, or is late; none is lost or doubled."""
    operator = SortByTimeOperator(
        nodes([InTimeOrder()], takes_pairs=True, takes_times=True), PlainTable()
    )
    steps = sorted(watermarks)
    out: list[Any] = []
    reached = BEGINNING
    for number, (key, time) in enumerate(rows):
        operator.process([(key, (time, number))])
        if steps and number % 4 == 3:
            reached = max(reached, steps.pop(0))
            out += [row for batch in operator.advance(reached) for row in batch]
            assert all(time <= reached for _, (time, _) in out)
    out += [row for batch in operator.finish() for row in batch]

    times = [time for _, (time, _) in out]
    assert times == sorted(times)
    late = [(row.key, (row.timestamp, row.value)) for row in operator.late]
    everything = [(key, (time, n)) for n, (key, time) in enumerate(rows)]
    assert sorted(out + late) == sorted(everything)
