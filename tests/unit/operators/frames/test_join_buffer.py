"""Rows of one side of a join: what is found, forgotten and told."""

from __future__ import annotations

import polars as pl

from millstream.operators.frames.join_buffer import JoinBuffer, ProbeKeys
from millstream.plan.frame_windows import TIME

KEYS = ("k",)


def rows(*pairs: tuple[int, int]) -> pl.DataFrame:
    """Return rows of key and time."""
    return pl.DataFrame(pairs, schema={"k": pl.Int64, TIME: pl.Int64}, orient="row")


def kept_after(stamp: int, *batches: pl.DataFrame) -> JoinBuffer:
    """Return rows that came in batches under a stamp."""
    kept = JoinBuffer(KEYS, {"reached": 7})
    kept.begin_stamp(stamp, 0)
    for batch in batches:
        kept.add(batch)
    return kept


def test_many_small_batches_become_few_runs() -> None:
    """What a lookup costs does not grow with the number of batches."""
    kept = kept_after(1, *(rows((n, n)) for n in range(1000)))
    assert len(kept) == 1000
    assert len(kept._runs) < 12


def test_long_run_gives_only_the_wanted_keys() -> None:
    """A batch costs what it finds, not what there is."""
    kept = kept_after(1, rows(*((n % 100, n) for n in range(10_000))))
    found = kept.candidates(ProbeKeys(rows((3, 0), (200, 0)), KEYS), 50, 350)
    assert found is not None
    assert sorted(found.rows()) == [(3, 103), (3, 203), (3, 303)]


def test_forgotten_rows_are_not_found() -> None:
    """Neither by time nor by key."""
    kept = kept_after(1, rows((1, 5), (1, 8)), rows((1, 6)))
    kept.forget(6)
    assert kept.first() == 6
    found = kept.between(0, 100)
    assert found is not None
    assert sorted(found.rows()) == [(1, 6), (1, 8)]


def test_delta_has_the_rows_after_a_stamp() -> None:
    """What is stored already is not stored again; facts are as they are now."""
    kept = kept_after(1, rows((1, 5)))
    kept.begin_stamp(2, 0)
    kept.add(rows((2, 6)))
    told = kept.delta(1)
    assert not told.is_all
    assert told.facts == {"reached": 7}
    assert told.rows is not None
    assert told.rows.rows() == [(2, 6)]


def test_rows_that_went_make_the_next_delta_tell_all() -> None:
    """A snapshot does not hold more rows that are gone than rows that are there."""
    kept = kept_after(1, rows((1, 5), (1, 6), (1, 7)))
    kept.begin_stamp(2, 0)
    kept.thin_out(rows((1, 7)))
    told = kept.delta(1)
    assert told.is_all
    assert told.rows is not None
    assert told.rows.rows() == [(1, 7)]
    assert not kept.delta(2).is_all
