"""The recipe of CONTRIBUTING.md for a new operator, followed step by step with a toy.

The steps below are all there is: nothing else in the engine knows the toy, and it moves,
is explained, is compared after a change of the program, and survives a resume at another
width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.halfway import ROWS, Numbers, finished, interrupted

import millstream as ms
from millstream.errors import SnapshotError
from millstream.operators import build
from millstream.operators.rows.by_key import KeyedOperator
from millstream.plan.spec import Spec, Traits
from millstream.plan.state_fields import Field

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.halfway import Build

    from millstream.operators.base import Rows


# 1. What the user asked for: plan/nodes.py.


@dataclass(frozen=True, slots=True)
class EveryNth(Spec):
    """Of the rows of a key, every n-th."""

    traits = Traits(
        keeps="number of rows by key", keeps_time=False, may_fail_on_record=False
    )

    n: int

    def detail(self) -> str:
        return f"one of {self.n}"

    def kept_fields(self) -> Iterable[Field]:
        yield Field.of("n", self.n)


# 2. What a task does with a batch: a file in operators/.


class EveryNthRow(KeyedOperator):
    """Counts the rows of every key."""

    def process(self, rows: Rows) -> Rows:
        spec = self.nodes[-1].spec
        assert isinstance(spec, EveryNth)
        counts, chosen = self.touched(rows), []
        for key, row in rows:
            counts[key] = counts.get(key, 0) + 1
            if counts[key] % spec.n == 0:
                chosen.append((key, row))
        return chosen


# 3. How it is made: a line in operators/build.py.


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        build.OPERATORS,
        EveryNth,
        lambda run, context: EveryNthRow(run, context.make_table()),
    )


# 4. The verb: a method in api/.


def every_nth(keyed: ms.KeyedStream[Any, Any], n: int) -> ms.KeyedStream[Any, Any]:
    return keyed._values("every_nth", EveryNth(n), None)


def building(n: int) -> Build:
    def build(flow: ms.Flow, source: Any) -> Any:
        rows = flow.read(source, name="in").key_by(lambda row: row[0], name="key")
        return every_nth(rows, n).unkey().collect(name="out")

    return build


def expected(n: int) -> list[str]:
    found = []
    for key in range(3):
        found += [(key, row) for row in ROWS if row[0] == key][n - 1 :: n]
    return sorted(map(repr, found))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_toy_operator_goes_on_at_any_width(tmp_path: Path, workers: int) -> None:
    """Its state is by key, so it is cut, stored and dealt out like everybody's."""
    savepoint = interrupted(building(7), tmp_path, workers=2)

    rows, _ = finished(building(7), resume_from=savepoint, workers=workers)

    assert rows == expected(7)


def test_toy_operator_with_other_state_is_refused(tmp_path: Path) -> None:
    """What it said of its state is all that the comparison needs."""
    savepoint = interrupted(building(7), tmp_path)

    with pytest.raises(SnapshotError, match=r"every_nth.*n: 7.*n: 5"):
        finished(building(5), resume_from=savepoint)


def test_toy_operator_is_explained() -> None:
    """The plan shows its detail; nobody but its spec knows it."""
    flow = ms.Flow("toy")
    building(7)(flow, Numbers(1))

    assert "every_nth (one of 7)" in flow.explain()
