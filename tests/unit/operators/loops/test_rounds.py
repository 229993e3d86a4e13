"""What heads hold from round to round, and what they go on with after a recovery."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from millstream.config import Config
from millstream.operators.build import TaskContext
from millstream.operators.loops.rounds import round_of
from millstream.plan.iteration import Iteration, IterationKind
from millstream.protocol.ids import Epoch
from millstream.protocol.rounds import Decision
from millstream.state.settings import StateSettings
from millstream.testing import ManualClock

ROWS = Iteration(IterationKind.DELTA, improve=lambda known, new: known or new)
FRAMES = Iteration(
    IterationKind.DELTA,
    makes_frames=True,
    keys=("key",),
    best=(pl.col("value").min(),),
    columns=("key", "value"),
)


def batch(kind: str, key: str) -> Any:
    if kind == "rows":
        return [(key, 1)]
    return pl.DataFrame({"key": [key], "value": [1]})


def keys(kind: str, batches: list[Any]) -> list[str]:
    if kind == "rows":
        return [key for rows in batches for key, _ in rows]
    return [key for rows in batches for key in rows["key"]]


@pytest.mark.parametrize("kind", ["rows", "frames"])
def test_solutions_of_iterations_that_are_over_do_not_come_back(kind: str) -> None:
    """An iteration inside another begins empty every time; deltas do not say so."""
    iteration = ROWS if kind == "rows" else FRAMES
    state = StateSettings(Config().shard_count)
    context = TaskContext(
        "job", 0, Config(), lambda *_: None, state, clock=ManualClock()
    )
    held, restored = round_of(iteration, context), round_of(iteration, context)
    held.collect(batch(kind, "before"))
    segments = list(held.state.capture(Epoch(1), Epoch(0)).segments("head", 0))
    over = Decision(number=5, is_over=True)
    assert keys(kind, list(held.result(over))) == ["before"]
    held.collect(batch(kind, "after"))
    segments += held.state.capture(Epoch(2), Epoch(1)).segments("head", 0)

    restored.state.restore(segments, (0, Config().shard_count))
    restored.resume(number=5, begun=5)

    assert keys(kind, list(restored.begin(Decision(6, is_over=False)))) == ["after"]
    assert keys(kind, list(restored.result(Decision(7, is_over=True)))) == ["after"]
