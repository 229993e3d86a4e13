"""What operators remember survives: captured, restored, and going on as if nothing was.

Method: rows go through one operator without interruption, and through another of its
kind that is captured in the middle, thrown away and restored; both must say the same.
"""

from __future__ import annotations

from collections import Counter
from operator import add
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.making import HERE, drained, nodes

from millstream.api.functions import StatefulFunction
from millstream.api.state_handles import ListState
from millstream.config import Config
from millstream.errors import SnapshotError
from millstream.operators.build import TaskContext, build_chain
from millstream.operators.rows.by_key import KeyedOperator
from millstream.plan import aggregate
from millstream.plan import nodes as specs
from millstream.plan.logical import Node
from millstream.protocol.ids import Epoch
from millstream.state.settings import StateSettings
from millstream.state.table import PlainTable
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.plan.spec import Spec
    from millstream.state.base import Segment

SHARDS = 64
EVERYTHING = (0, SHARDS)
MEMORY = StateSettings(SHARDS)
SETTINGS = [
    pytest.param(None, id="no snapshots"),
    pytest.param(MEMORY, id="memory"),
    pytest.param(StateSettings(SHARDS, "rocksdb", cache_entries=2), id="rocksdb"),
]
STORED = SETTINGS[1:]

PAIRS = [(number % 7, number) for number in range(60)]
COUNT, SUM, MEAN = map(aggregate.builtin, ("count", "sum", "mean"))
UNIQUE = aggregate.builtin("unique")


class InThrees(StatefulFunction[Any, Any, Any]):
    """Three values of a key at a time; then nothing is left of it."""

    waiting = ListState[int]()

    def on_record(self, key: Any, value: int) -> list[Any]:
        self.waiting.append(value)
        if len(self.waiting) < 3:
            return []
        three = self.waiting.get()
        self.waiting.clear()
        return [three]

    def on_end(self, key: Any) -> list[Any]:
        return [self.waiting.get()]


KEYED: dict[str, Spec] = {
    "count": specs.AggregateByKey(COUNT),
    "combined sum": specs.AggregateByKey(SUM, is_combined=True),
    "mean": specs.AggregateByKey(MEAN),
    "sets": specs.AggregateByKey(UNIQUE),
    "running sum": specs.Scan(SUM),
    "running sets": specs.Scan(UNIQUE),
    "process": specs.Process(InThrees()),
    "unique": specs.Unique(),
}
OTHERS: dict[str, Spec] = {
    "sum": specs.AggregateAll(SUM),
    "count": specs.AggregateAll(COUNT),
    "local mean": specs.CombineAll(MEAN),
    "limit": specs.Limit(45),
    "sort": specs.SortBy(lambda row: -row),
    "top": specs.SortBy(lambda row: row % 5, is_descending=True, limit=3),
}


def made(spec: Spec, settings: StateSettings | None = MEMORY) -> Any:
    config = Config(sort_memory_rows=16)
    context = TaskContext(
        "job", 0, config, lambda _sink, _rows: None, settings, clock=ManualClock()
    )
    (operator,) = build_chain(nodes([spec]), context)
    return operator


def batches(rows: list[Any], size: int = 10) -> list[list[Any]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def captured(operator: Any, epoch: int, since: int = 0) -> list[Segment]:
    assert operator.state is not None
    capture = operator.state.capture(Epoch(epoch), Epoch(since))
    return list(capture.segments(operator.nodes[-1].name, 0))


def restored(spec: Spec, segments: list[Segment], settings: StateSettings) -> Any:
    operator = made(spec, settings)
    assert operator.state is not None
    operator.state.restore(segments, EVERYTHING)
    return operator


def with_a_crash(
    spec: Spec, work: Sequence[list[Any]], settings: StateSettings
) -> list[Any]:
    """Capture after two and after four batches, lose a fifth, restore, do the rest."""
    first = made(spec, settings)
    rows = [row for batch in work[:2] for row in first.process(batch)]
    segments = captured(first, 1)
    rows += [row for batch in work[2:4] for row in first.process(batch)]
    segments += captured(first, 2, since=1)
    first.process(work[4])
    first.close()
    return rows + drained(restored(spec, segments, settings), work[4:])


def same(left: list[Any], right: list[Any]) -> bool:
    return Counter(map(repr, left)) == Counter(map(repr, right))


@pytest.mark.parametrize("settings", STORED)
@pytest.mark.parametrize("spec", KEYED.values(), ids=KEYED)
def test_operator_by_key_goes_on_after_a_crash(
    spec: Spec, settings: StateSettings
) -> None:
    """From a base and a delta, with what came after the last cut undone."""
    work = batches(PAIRS)

    assert same(with_a_crash(spec, work, settings), drained(made(spec, None), work))


@pytest.mark.parametrize("spec", OTHERS.values(), ids=OTHERS)
def test_operator_without_keys_goes_on_after_a_crash(spec: Spec) -> None:
    """Rows that a sort has put into a file are stored as well."""
    work = batches(list(range(60)))

    assert with_a_crash(spec, work, MEMORY) == drained(made(spec, None), work)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("spec", KEYED.values(), ids=KEYED)
def test_table_changes_no_result(spec: Spec, settings: StateSettings | None) -> None:
    """Where state is kept is nobody's business but the operator's."""
    work = batches(PAIRS)

    assert same(drained(made(spec, settings), work), drained(made(spec, None), work))


@pytest.mark.parametrize("spec", KEYED.values(), ids=KEYED)
def test_nothing_is_tracked_without_snapshots(spec: Spec) -> None:
    """Who takes no snapshots pays nothing for them."""
    operator = made(spec, None)

    assert isinstance(operator, KeyedOperator)
    assert type(operator.table) is PlainTable


def test_forgotten_key_is_a_deletion() -> None:
    """A key whose state was cleared must not come back with a restore."""
    operator = made(specs.Process(InThrees()))
    operator.process([("a", 1), ("b", 1)])
    segments = captured(operator, 1)
    operator.process([("a", 2), ("a", 3)])
    segments += captured(operator, 2, since=1)

    again = restored(specs.Process(InThrees()), segments, MEMORY)

    assert drained(again, []) == [("b", [1])]


def test_distinct_key_that_was_seen_before_is_not_stored_again() -> None:
    """Otherwise hot keys would be in every delta."""
    operator = made(specs.Unique())
    operator.process([("a", None), ("b", None)])
    captured(operator, 1)
    operator.process([("a", None), ("b", None)])

    assert captured(operator, 2, since=1) == []


def test_zip_keeps_the_rows_that_wait() -> None:
    """Partners may come after the cut."""
    zipped = made(specs.Zip())
    zipped.process([1, 2, 3], 0)
    zipped.process(["a"], 1)

    again = restored(specs.Zip(), captured(zipped, 1), MEMORY)

    assert again.process(["b", "c"], 1) == [(2, "b"), (3, "c")]


def of_tasks(spec: Spec, parts: list[list[Any]], *port: int) -> list[Segment]:
    """Return the states of several tasks, each of which saw one part of the rows."""
    segments: list[Segment] = []
    for task, rows in enumerate(parts):
        operator = made(spec)
        operator.process(rows, *port)
        assert operator.state is not None
        capture = operator.state.capture(Epoch(1), Epoch(0))
        segments += capture.segments("operator", task)
    return segments


@pytest.mark.parametrize("name", ["mean", "unique"])
def test_accumulators_of_several_tasks_merge(name: str) -> None:
    """A job may go on with fewer tasks."""
    spec = specs.CombineAll(aggregate.builtin(name))
    again = restored(spec, of_tasks(spec, [[1, 2], [3], [4, 4]]), MEMORY)

    assert drained(again, [[5]]) == drained(made(spec), [[1, 2, 3, 4, 4, 5]])


def test_task_that_has_seen_nothing_adds_nothing() -> None:
    """An aggregate without rows has no accumulator to merge."""
    spec = specs.CombineAll(SUM)
    segments = captured(made(spec), 1)

    assert drained(restored(spec, segments, MEMORY), []) == []


def test_accumulators_without_a_merge_are_refused() -> None:
    """A wrong result would be worse."""
    spec = specs.AggregateAll(aggregate.fold(0, add))

    with pytest.raises(SnapshotError, match=r"2 tasks .* 'fold' has no `merge`"):
        restored(spec, of_tasks(spec, [[1], [2]]), MEMORY)


def test_rows_of_several_sorts_are_sorted_together() -> None:
    """Each task of a sort with a limit has its own first rows."""
    spec = specs.SortBy(lambda row: row, limit=3)
    again = restored(spec, of_tasks(spec, [[5, 1, 9], [4, 2, 8]]), MEMORY)

    assert drained(again, [[3]]) == [1, 2, 3]


def test_limits_of_several_tasks_let_enough_rows_pass() -> None:
    """The one limit behind them counts exactly."""
    spec = specs.Limit(3)
    again = restored(spec, of_tasks(spec, [["a", "b", "c"], ["d"]]), MEMORY)

    assert again.process(["e", "f", "g"]) == ["e", "f"]


def test_rows_that_wait_in_several_zips_are_refused() -> None:
    """A zip has one task; two cannot have been of this flow."""
    with pytest.raises(SnapshotError, match="rows of 2 tasks wait"):
        restored(specs.Zip(), of_tasks(specs.Zip(), [[1], [2]], 0), MEMORY)


def test_closing_an_operator_closes_its_table(tmp_path: Path) -> None:
    """Directories of RocksDB would stay behind."""
    settings = StateSettings(SHARDS, "rocksdb", str(tmp_path))
    operator = made(specs.Process(InThrees()), settings)
    operator.process([("a", 1)])
    assert len(list(tmp_path.iterdir())) == 1

    operator.close()

    assert list(tmp_path.iterdir()) == []


def test_state_is_found_by_the_name_of_the_last_node() -> None:
    """A resume looks for it under that name."""
    aggregated = Node(3, "totals", "sum", specs.AggregateByKey(SUM), (), HERE)
    context = TaskContext(
        "job", 0, Config(), lambda _sink, _rows: None, MEMORY, clock=ManualClock()
    )

    (operator,) = build_chain([aggregated], context)

    assert operator.nodes[-1].name == "totals"
    assert operator.state is not None
