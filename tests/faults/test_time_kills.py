"""Workers that are killed while windows, joins and timers wait for their time.

Method: both workers are killed in turn, each when a snapshot has rows that wait; the
results must be those of plain Python.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.faults.timed_killing import (
    COUNT,
    DISORDER,
    KEYS,
    SETTINGS,
    Row,
    Slowly,
    arrivals,
    came,
    killed_in_turn,
    row,
)
from tests.support.joining import interval_oracle
from tests.support.windowing import naive_windows
from tests.system.test_timed_loops import laps

import millstream as ms
from millstream.plan.joins import How

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

SIZE, SLIDE = 40, 20
REACH = 5


class Silence(ms.StatefulFunction[int, Row, Row]):
    """Tell when a key was silent for long, and how many rows it had had."""

    seen = ms.ValueState(default=0)

    def on_record(self, key: int, value: Row) -> None:
        self.seen.update(self.seen.get() + 1)
        self.timers.at_event_time(10_000 + key)

    def on_timer(self, key: int, timer: ms.Timer) -> Iterator[Row]:
        yield key, timer.time * 1_000 + self.seen.get()


def test_time_goes_on_where_it_was_after_kills(
    place: dict[str, Any], tmp_path: Path
) -> None:
    """Windows, also behind a loop, late rows, pairs and timers are there once."""
    hurry = tmp_path / "hurry"
    flow = ms.Flow("killed")
    timed = flow.read(Slowly(hurry)).event_time(
        lambda row: row[1], out_of_order=DISORDER
    )
    keyed = timed.key_by(lambda row: row[0])
    sliding = ms.windows.sliding(SIZE, SLIDE)
    counts = keyed.window(sliding).with_window().count()
    late, windows = counts.late().collect(), counts.collect()
    frame = timed.map(lambda row: {"key": row[0]}).to_frame({"key": pl.Int64})
    framed = frame.group_by("key").window(sliding).agg(n=pl.len()).collect()
    on_time = keyed.filter(lambda row: (row[1] + row[0]) % 3 != 0)
    pairs = on_time.interval_join(keyed, -REACH, REACH).collect()
    silent = keyed.process(Silence()).collect()
    turned = timed.map(lambda row: (row, row[1] % 4)).loop(laps)
    behind = turned.key_by(lambda row: row[0]).window(sliding).with_window()
    looped = behind.count().collect()
    state = tmp_path / "state"
    job = flow.start(**place, state=state, **SETTINGS)

    killed_in_turn(job, hurry)

    found, too_late = naive_windows(sliding, 0, arrivals())
    right = sorted((k, *window, len(rows)) for (k, window), rows in found.items())
    assert sorted((k, *window, n) for k, (window, n) in windows.result()) == right
    assert Counter(each.value for each in late.result()) == Counter(
        (each.key, each.time) for each in too_late
    )
    assert sorted(framed.result().rows()) == right
    assert sorted((k, *window, n) for k, (window, n) in looped.result()) == right
    assert Counter(pairs.result()) == pairs_in_python()
    seen = Counter(row(number)[0] for number in range(COUNT))
    ends = {(key, (10_000 + key) * 1_000 + seen[key]) for key in range(KEYS)}
    assert sorted(pair for _, pair in silent.result()) == sorted(ends)


def pairs_in_python() -> Counter[Any]:
    sides = [each for each in came() if (each.time + each.key) % 3 != 0], came()
    expected = interval_oracle(How.INNER, -REACH, REACH, [*sides])
    return Counter(
        (key, ((key, one), (key, other))) for key, (_, (one, other)) in expected.rows
    )
