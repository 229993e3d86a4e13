"""Workers that are killed while rows go through rounds with their times, and behind them.

Method: a worker is killed in the middle of the rounds; the other one when they are over,
and what they made waits in windows, together with rows that come slowly and hold time
back.  Results must be those of plain Python, which knows neither batches nor tasks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pytest
from tests.faults.timed_killing import (
    DISORDER,
    SETTINGS,
    Slowly,
    arrivals,
    killed,
    rows_of,
    settled,
)
from tests.spark.driving import eventually
from tests.support.windowing import Arrival, naive_windows

import millstream as ms
from millstream.protocol.watermark import BEGINNING
from millstream.windows import sliding, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.timed_killing import Row

    from millstream.plan.windows import TimeWindows

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

ROUNDS, EARLY = 60, 5
SIZE, SLIDE = 40, 20
MODULUS = 1_009
SCHEMA = {"key": pl.Int64, "n": pl.Int64}

Check = Callable[[], None]
"""What plain Python says about the result of a loop."""


class Token(NamedTuple):
    """A row as it goes round."""

    key: int
    n: int


class Rows(NamedTuple):
    """Tokens that are there at once, and the same ones when there is a hurry."""

    quick: ms.Stream[Token]
    slow: ms.Stream[Token]


def resting(hurry: Path) -> Callable[[Any], bool]:
    """Return what takes a moment after every round until the file is there."""

    def is_over(_value: object) -> bool:
        if not hurry.exists():
            threading.Event().wait(0.1)
        return False

    return is_over


def timed(rows: ms.Stream[Row]) -> ms.Stream[Token]:
    """Give rows their times, and numbers to begin with."""
    stamped = rows.event_time(lambda row: row[1], out_of_order=DISORDER)
    return stamped.map(lambda row: Token(row[0], row[1] % MODULUS))


def valued(rows: list[Arrival], value: Callable[[Arrival], int]) -> list[Arrival]:
    """Return arrivals with other values."""
    return [replace(each, value=value(each)) for each in rows]


def begun() -> list[Arrival]:
    """Return what goes into the loops, as plain Python sees it."""
    return valued(arrivals(), lambda each: each.time % MODULUS)


def summed(window: TimeWindows, rows: list[Arrival]) -> list[Any]:
    """Return key, bounds and sum of every window."""
    found, _ = naive_windows(window, 0, rows)
    return [(k, *w, sum(each.value for each in own)) for (k, w), own in found.items()]


def grown(token: Token) -> Token:
    """Return what becomes of a token in a round."""
    return Token(token.key, (7 * token.n + token.key) % MODULUS)


def iterated(rows: Rows, is_over: Callable[[Any], bool]) -> Check:
    """Let rows change and move, and lay them into windows when they are ready."""
    turned = rows.quick.iterate(
        lambda rows: rows.map(grown).shuffle(),
        reduce=max,
        until=is_over,
        max_rounds=ROUNDS,
    )
    window = sliding(SIZE, SLIDE)
    keyed = turned.merge(rows.slow).key_by(lambda token: token.key)
    sums = keyed.map(lambda token: token.n).window(window).with_window().sum()
    late, found = sums.late().collect(), sums.collect()

    def check() -> None:
        made = begun()
        for _ in range(ROUNDS):
            made = valued(made, lambda each: grown(Token(each.key, each.value)).n)
        both = [*made, *begun()]
        right = sorted(summed(window, both))
        assert sorted((key, *w, n) for key, (w, n) in found.result()) == right
        _, too_late = naive_windows(window, 0, both)
        assert too_late
        assert Counter((each.key, each.value) for each in late.result()) == Counter(
            (each.key, each.value) for each in too_late
        )

    return check


def cycled(rows: Rows, is_over: Callable[[Any], bool]) -> Check:
    """Let every round lay the same rows into windows."""
    window = tumbling(SIZE)

    def body(tokens: Any, state: ms.RoundState[int]) -> Any:
        keyed = tokens.key_by(lambda token: token.key)
        changed = keyed.map(lambda token: (token.n + state.value) % 17)
        return changed.window(window).reduce(max).drop_key()

    made = rows.quick.cycle(
        1,
        body,
        lambda state, most: (3 * state + sum(most)) % MODULUS,
        until=is_over,
        max_rounds=ROUNDS,
    ).collect()

    def check() -> None:
        found, _ = naive_windows(window, 0, begun())
        state = 1
        for _ in range(ROUNDS):
            most = [max((a.value + state) % 17 for a in own) for own in found.values()]
            state = (3 * state + sum(most)) % MODULUS
        assert made.result() == [state]

    return check


def iterated_frames(rows: Rows, is_over: Callable[[Any], bool]) -> Check:
    """Let every round make windows of those of the round before."""
    quick, slow = rows.quick.to_frame(SCHEMA), rows.slow.to_frame(SCHEMA)
    n = pl.col("n")

    def body(tokens: ms.Frame) -> ms.Frame:
        changed = tokens.with_columns((n * 7 + pl.col("key")) % MODULUS)
        sums = changed.group_by("key").window(tumbling(SLIDE)).agg(n.sum())
        return sums.select("key", "n")

    turned = quick.iterate(
        body,
        reduce=lambda rows: rows.select(n.max()),
        until=is_over,
        max_rounds=ROUNDS,
    )
    window = sliding(SIZE, SLIDE)
    found = turned.union(slow).group_by("key").window(window).agg(n.sum()).collect()

    def check() -> None:
        made = begun()
        for _ in range(ROUNDS):
            changed = valued(made, lambda each: (7 * each.value + each.key) % MODULUS)
            made = [
                Arrival(key, end - 1, total, BEGINNING)
                for key, _, end, total in summed(tumbling(SLIDE), changed)
            ]
        assert sorted(found.result().rows()) == sorted(summed(window, made + begun()))

    return check


def cycled_frames(rows: Rows, is_over: Callable[[Any], bool]) -> Check:
    """Let every round lay the same frames into windows."""
    window = tumbling(SIZE)

    def body(tokens: ms.Frame, state: ms.RoundState[int]) -> ms.Frame:
        def changed(sums: pl.DataFrame) -> pl.DataFrame:
            return sums.with_columns(pl.col("n") * state.value % 17)

        sums = tokens.group_by("key").window(window).agg(pl.col("n").sum())
        return sums.select("key", "n").map_batches(changed)

    made = (
        rows.quick.to_frame(SCHEMA)
        .cycle(
            1,
            body,
            lambda state, sums: (3 * state + int(sums["n"].sum())) % MODULUS,
            until=is_over,
            max_rounds=ROUNDS,
        )
        .collect()
    )

    def check() -> None:
        sums = summed(window, begun())
        state = 1
        for _ in range(ROUNDS):
            state = (3 * state + sum(n * state % 17 for *_, n in sums)) % MODULUS
        assert made.result() == [state]

    return check


PARTS = (iterated, cycled, iterated_frames, cycled_frames)


def rounds_done(job: ms.Job) -> list[int]:
    """Return how many rounds every loop has done, as far as one has begun."""
    rounds = [stage.rounds for stage in job.metrics() if stage.rounds is not None]
    return [each.done for each in rounds]


def has_all(job: ms.Job, rounds: int) -> bool:
    done = rounds_done(job)
    return len(done) == len(PARTS) and min(done) >= rounds


def test_rows_keep_their_times_from_round_to_round_after_kills(
    place: dict[str, Any], tmp_path: Path
) -> None:
    """Rounds, their windows and the windows behind them are those of plain Python."""
    hurry, hurry_rounds = tmp_path / "hurry", tmp_path / "hurry_rounds"
    flow = ms.Flow("killed")
    quick = timed(flow.from_parallel(rows_of))
    rows = Rows(quick, timed(flow.read(Slowly(hurry))))
    checks = [part(rows, resting(hurry_rounds)) for part in PARTS]
    job = flow.start(**place, state=tmp_path / "state", **SETTINGS)

    eventually(lambda: has_all(job, EARLY))
    settled(job)
    assert max(rounds_done(job)) < ROUNDS, "all loops are in the middle"
    killed(job)
    hurry_rounds.touch()
    eventually(lambda: has_all(job, ROUNDS))
    settled(job)
    killed(job)
    hurry.touch()

    assert job.wait()
    assert all(recovery.epoch > 0 for recovery in job.recoveries())
    assert rounds_done(job) == [ROUNDS] * len(PARTS)
    for check in checks:
        check()
