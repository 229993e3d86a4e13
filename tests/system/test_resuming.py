"""Iterations that go on with other workers: no row and no round is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.examples import mostly_slow
from tests.support.pacing import (
    LENGTHS,
    Pace,
    Paced,
    Programs,
    in_epoch,
    in_round,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import millstream as ms

ROUNDS = 100


def iterated(flow: ms.Flow, pace: Pace) -> None:
    flow.read(Paced(pace), name="rows").iterate(
        lambda q: q.shuffle(name="spread").map(lambda i: i + 1000, name="more"),
        max_rounds=ROUNDS,
        name="it",
    ).collect(name="found")


def iterated_frames(flow: ms.Flow, pace: Pace) -> None:
    rows = flow.read(Paced(pace), name="rows").map(lambda i: {"n": i}, name="dicts")
    frame = rows.to_frame({"n": pl.Int64}, name="frame").iterate(
        lambda f: f.with_columns(n=pl.col("n") + 1000, name="more"),
        max_rounds=ROUNDS,
        name="it",
    )
    frame.to_rows(name="dicts again").map(lambda r: r["n"], name="n").collect(
        name="found"
    )


def cycled(flow: ms.Flow, pace: Pace) -> None:
    flow.read(Paced(pace), name="rows").cycle(
        0,
        lambda q, state: q.map(lambda i: (i + state.value) % 7, name="rest"),
        update=lambda state, rows: state + sum(rows),
        max_rounds=ROUNDS,
        name="it",
    ).collect(name="found")


def improved(flow: ms.Flow, pace: Pace) -> None:
    """Hand the least number of a chain on, one step in every round."""
    known = flow.read(Paced(pace), name="rows").key_by(lambda i: i, name="own")

    def hand_on(better: Any) -> Any:
        told = better.unkey(name="pairs").filter(lambda p: p[0] < 63, name="inner")
        return told.key_by(lambda p: p[0] + 1, name="next").map(
            lambda p: p[1], name="least"
        )

    known.delta_iterate(
        lambda old, new: new if old is None or new < old else None, hand_on, name="it"
    ).unkey(name="all").collect(name="found")


def cycle_result() -> int:
    state = 0
    for _ in range(ROUNDS):
        state += sum((i + state) % 7 for i in range(sum(LENGTHS)))
    return state


EXPECTED: dict[Callable[..., None], list[Any]] = {
    iterated: [1000 * ROUNDS + i for i in range(sum(LENGTHS))],
    iterated_frames: [1000 * ROUNDS + i for i in range(sum(LENGTHS))],
    cycled: [cycle_result()],
    improved: [(i, 0) for i in range(sum(LENGTHS))],
}


@pytest.mark.parametrize("widths", mostly_slow((3, 2), (2, 4)))
@pytest.mark.parametrize(
    "reached", [in_epoch(4), in_round(5)], ids=["collecting", "rounds"]
)
@pytest.mark.parametrize(
    "build", mostly_slow(*EXPECTED, fast=2), ids=lambda build: build.__name__
)
def test_iteration_goes_on_at_another_width(
    tmp_path: Path,
    build: Callable[..., None],
    reached: Callable[[ms.Job], bool],
    widths: tuple[int, int],
) -> None:
    """While some heads have all of their input and others do not, and between rounds."""
    programs = Programs(build, tmp_path)
    if reached.__name__ == "is_reached":
        programs.pace.is_over = True

    programs.leave_at(widths[0], reached)

    assert sorted(programs.finish(widths[1])["found"]) == EXPECTED[build]
