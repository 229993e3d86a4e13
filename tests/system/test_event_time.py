"""Event time through whole flows: splits, merges, loops, crashes, other widths.

Method: several splits with their own disorder; which rows are late is found by looking
at each split alone, and must be the same however the flow is run.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.examples import is_exhaustive, mostly_slow
from tests.support.resizing import run_at_two_widths, run_at_widths

import millstream as ms
from millstream.testing import Pause, ScriptedSource, manual_time, simulate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DISORDER = 5
PARTS = 8
SIZE = 10
QUICK: dict[str, Any] = {"watermark_every_ms": 0.001, "source_batch_rows": 7}


def splits_of(seed: int, count: int = 3, rows: int = 60) -> list[list[int]]:
    """Return timestamps by split; the splits are far apart, and some rows are late."""
    drawn = random.Random(seed)
    return [
        [200 * split + 2 * i + drawn.randint(-12, 3) for i in range(rows)]
        for split in range(count)
    ]


def expected(splits: list[list[int]]) -> tuple[Counter[int], Counter[int]]:
    """Return how many rows each window has, and which rows are late."""
    counts: Counter[int] = Counter()
    late: Counter[int] = Counter()
    for times in splits:
        promise = -(10**9)
        for time in times:
            end = time // SIZE * SIZE + SIZE
            if end - 1 <= promise:
                late[time] += 1
            else:
                counts[end] += 1
            promise = max(promise, time - DISORDER - 1)
    return counts, late


def timed_rows(
    flow: ms.Flow, scripts: list[list[Any]], **timing: Any
) -> ms.Stream[int]:
    """Return timestamps that are rows with that time."""
    times = flow.read(ScriptedSource(*scripts))
    return times.event_time(lambda time: time, out_of_order=DISORDER, **timing)


def windowed(rows: Any) -> Any:
    """Count timestamps by window."""
    keyed = rows.key_by(lambda time: time // SIZE * SIZE + SIZE)
    return keyed.window(ms.windows.tumbling(SIZE)).count()


def collected(counts: Any) -> Callable[[], tuple[Any, Any]]:
    """Collect counts and late rows; return what gives both when the flow has run."""
    late, results = counts.late().collect(), counts.collect()
    return lambda: (dict(results.result()), values_of(late.result()))


def values_of(late: list[Any]) -> Counter[int]:
    """Return how often each timestamp was late."""
    return Counter(row.value for row in late)


def collected_frames(windows: Any) -> Callable[[], tuple[Any, Any]]:
    """Count rows by window, as `collected` does."""
    counts = windows.agg(n=pl.len())
    late, results = counts.late().collect(), counts.collect()
    return lambda: (
        dict(results.result().select("window_end", "n").iter_rows()),
        Counter(late.result()["at"]),
    )


def survives_crashes(flow: ms.Flow, counts: Any, splits: list[list[int]]) -> None:
    """Check that counts and late rows are those of the splits in any simulation."""
    right = expected(splits)
    counts.late().collect(name="late rows")
    counts.collect(name="counts")

    def check(rows: dict[str, list[Any]]) -> None:
        assert (dict(rows["counts"]), values_of(rows["late rows"])) == right

    seeds = 25 if is_exhaustive() else 6
    simulate(flow, seeds=seeds, workers=2, snapshots=True, check=check)


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
def test_the_same_rows_are_late_at_any_width(workers: int) -> None:
    """A worker that reads splits one after the other says what three of them say."""
    splits = splits_of(1)
    flow = ms.Flow("widths")
    found = collected(windowed(timed_rows(flow, splits)))
    flow.run(on="local", workers=workers, **QUICK)

    assert found() == expected(splits)
    assert found()[1], "the test should have late rows"


@pytest.mark.slow
def test_the_same_rows_are_late_after_any_crash() -> None:
    """What a split has promised is in the snapshot, with its offset."""
    splits = splits_of(2)
    flow = ms.Flow("crashes")
    survives_crashes(flow, windowed(timed_rows(flow, splits)), splits)


def every_fourth() -> Any:
    """Return a rule that remembers: every fourth row promises what was the latest."""
    seen: list[int] = []

    def promise(_row: Any, time: int) -> int | None:
        seen.append(time)
        return max(seen) - 1 if len(seen) % 4 == 0 else None

    return promise


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "frames"])
def test_rule_that_remembers_says_the_same_after_any_crash(kind: str) -> None:
    """What the user's own watermark function remembers is in the snapshot."""
    splits = splits_of(6)
    counts: Counter[int] = Counter()
    late: Counter[int] = Counter()
    for times in splits:
        rule, promise = every_fourth(), -(10**9)
        for time in times:
            end = time // SIZE * SIZE + SIZE
            (late if end - 1 <= promise else counts)[end] += 1
            promise = max(promise, rule(time, time) or promise)
    flow = ms.Flow("rules")
    scripts = [[s for t in times for s in (t, Pause())] for times in splits]
    source = flow.read(ScriptedSource(*scripts))
    if kind == "rows":
        timed = source.event_time(lambda t: t, watermark=every_fourth)
        windows = windowed(timed)
        windows.collect(name="counts")
    else:
        frame = source.map(lambda t: {"at": t}).to_frame({"at": pl.Int64})
        timed_frame = frame.event_time("at", watermark=every_fourth)
        windows = timed_frame.window(ms.windows.tumbling(SIZE)).agg(n=pl.len())
        windows.to_rows().map(lambda row: (row["window_end"], row["n"])).collect(
            name="counts"
        )

    def check(rows: dict[str, list[Any]]) -> None:
        assert Counter(dict(rows["counts"])) == counts

    simulate(flow, seeds=20, workers=2, snapshots=True, check=check)
    assert late, "the test should have late rows"


@pytest.mark.parametrize("widths", mostly_slow((1, 3), (3, 2), (2, 3, 2)))
def test_promises_go_with_their_splits_to_another_width(
    widths: tuple[int, ...], tmp_path: Path
) -> None:
    """The worker that goes on with a split knows what was promised for it, and no other."""
    splits = splits_of(3, count=5, rows=200)
    scripts = [[s for t in times for s in (t, Pause(), Pause())] for times in splits]
    flow = ms.Flow("moved")
    found = collected(windowed(timed_rows(flow, scripts)))
    run_at_widths(flow, widths, tmp_path, idle_ms=25)

    assert found() == expected(splits)


@pytest.mark.parametrize("widths", mostly_slow((2, 3), (3, 2)))
def test_promises_of_channels_hold_for_no_others_at_another_width(
    widths: tuple[int, int], tmp_path: Path
) -> None:
    """Behind a shuffle rows that were in time by one channel may come by any other."""
    early, late = range(0, 2_000, 5), range(1_000_000, 1_002_000, 5)
    scripts = [
        [s for t in times for s in (t, Pause(), Pause())] for times in (early, late)
    ]
    flow = ms.Flow("shuffled")
    shuffled = flow.read(ScriptedSource(*scripts)).shuffle()
    found = collected(windowed(shuffled.event_time(lambda t: t, out_of_order=DISORDER)))
    run_at_two_widths(flow, widths, tmp_path, idle_ms=25)

    assert found() == (expected([[*early], [*late]])[0], Counter())


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
def test_the_same_rows_of_a_frame_are_late_at_any_width(workers: int) -> None:
    """What can be cut anywhere is cut into the same parts for any number of workers."""
    drawn = random.Random(5)
    times = [2 * i + drawn.randint(-14, 3) for i in range(10_000)]
    flow = ms.Flow("frame")
    frame = flow.from_frame(pl.DataFrame({"at": times}))
    rows = frame.event_time("at", out_of_order=DISORDER)
    found = collected_frames(rows.window(ms.windows.tumbling(SIZE)))
    flow.run(on="local", workers=workers)

    bounds = [len(times) * i // PARTS for i in range(PARTS + 1)]
    assert found() == expected([times[a:b] for a, b in pairwise(bounds)])


def _beside_scripts(flow: ms.Flow, scripts: list[list[Any]]) -> Any:
    times = flow.read(ScriptedSource(*scripts))
    times.collect(name="beside")
    return times.event_time(lambda time: time, out_of_order=DISORDER)


def _beside_two_others(flow: ms.Flow, scripts: list[list[Any]]) -> Any:
    times = flow.read(ScriptedSource(*scripts))
    halves = times.map(lambda time: (time // 2, time % 2))
    for stream in (times, halves):
        stream.shuffle().collect()
    whole = halves.map(lambda half: 2 * half[0] + half[1])
    backward = whole.event_time(lambda time: -time)
    backward.window(ms.windows.tumbling(SIZE)).count().collect(name="backward")
    return whole.event_time(lambda time: time, out_of_order=DISORDER)


def _beside_iterable(flow: ms.Flow, scripts: list[list[Any]]) -> Any:
    (times,) = scripts
    rows = flow.from_iterable([time for time in times if isinstance(time, int)])
    rows.map(str).collect(name="beside")
    return rows.event_time(lambda time: time, out_of_order=DISORDER)


def _beside_frame(flow: ms.Flow, scripts: list[list[Any]]) -> Any:
    rows = flow.read(ScriptedSource(*scripts)).map(lambda time: {"at": time})
    frame = rows.to_frame({"at": pl.Int64})
    frame.collect(name="beside")
    frame.select("at").collect(name="beside it")
    return frame.event_time("at", out_of_order=DISORDER)


BESIDE: dict[str, tuple[Callable[..., Any], int]] = {
    "scripts": (_beside_scripts, 3),
    "two others": (_beside_two_others, 3),
    "iterable": (_beside_iterable, 1),
    "frame": (_beside_frame, 3),
}


def collected_of(timed: Any) -> Callable[[], tuple[Any, Any]]:
    """Collect counts and late rows of timestamps, or of a frame of them."""
    if isinstance(timed, ms.Frame):
        return collected_frames(timed.window(ms.windows.tumbling(SIZE)))
    return collected(windowed(timed))


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
@pytest.mark.parametrize("kind", BESIDE)
def test_the_same_rows_are_late_though_others_read_the_source(
    kind: str, workers: int
) -> None:
    """Rows that others get too are those of a split all the same."""
    make, count = BESIDE[kind]
    splits = splits_of(4, count, rows=300)
    flow = ms.Flow("beside")
    found = collected_of(make(flow, splits))
    flow.run(on="local", workers=workers, **QUICK)

    assert found() == expected(splits)
    assert found()[1], "the test should have late rows"


@pytest.mark.parametrize("widths", mostly_slow((1, 3), (3, 2), (2, 3, 1)))
@pytest.mark.parametrize("kind", [kind for kind in BESIDE if kind != "iterable"])
def test_promises_go_with_splits_that_others_read_to_another_width(
    kind: str, widths: tuple[int, ...], tmp_path: Path
) -> None:
    """The task that goes on with the rows of a split knows what was promised for it."""
    splits = splits_of(3, count=5, rows=200)
    scripts = [[s for t in times for s in (t, Pause(), Pause())] for times in splits]
    flow = ms.Flow("moved beside")
    found = collected_of(BESIDE[kind][0](flow, scripts))
    run_at_widths(flow, widths, tmp_path, idle_ms=25)

    assert found() == expected(splits)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scripts", "two others", "iterable"])
def test_the_same_rows_are_late_after_any_crash_though_others_read_the_source(
    kind: str,
) -> None:
    """Which split rows come from is told anew, and what it promised is not forgotten."""
    make, count = BESIDE[kind]
    splits = splits_of(2, count)
    flow = ms.Flow("crashes beside")
    survives_crashes(flow, windowed(make(flow, splits)), splits)


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2))
def test_frame_that_others_read_is_cut_into_the_same_parts(workers: int) -> None:
    """How a source is cut follows from time being given, wherever that is."""
    drawn = random.Random(5)
    times = [2 * i + drawn.randint(-14, 3) for i in range(10_000)]
    flow = ms.Flow("frame beside")
    frame = flow.from_frame(pl.DataFrame({"at": times}))
    frame.collect(name="beside")
    rows = frame.event_time("at", out_of_order=DISORDER)
    found = collected_frames(rows.window(ms.windows.tumbling(SIZE)))
    flow.run(on="local", workers=workers)

    bounds = [len(times) * i // PARTS for i in range(PARTS + 1)]
    assert found() == expected([times[a:b] for a, b in pairwise(bounds)])


class BoundedScripts(ScriptedSource):
    """Scripts that are read one after the other."""

    is_bounded = True


def test_splits_in_order_do_not_wait_for_each_other() -> None:
    """Windows of the first part are over while later ones have not been opened."""
    seen: list[int] = []
    splits = [list(range(100 * i, 100 * i + 100)) for i in range(4)]
    flow = ms.Flow("in order")
    timed = flow.read(BoundedScripts(*splits)).event_time(
        lambda t: t, splits_in_order=True
    )
    counts = windowed(timed.inspect(seen.append))
    first = counts.map(lambda _: len(seen)).drop_key().min()
    flow.run(on="local", workers=1, watermark_every_ms=0.001, source_batch_rows=10)

    assert first.result() < 100


@pytest.mark.parametrize(("idle_after", "is_early"), [("10s", True), (None, False)])
def test_quiet_split_holds_time_back_only_until_it_is_idle(
    idle_after: str | None, *, is_early: bool
) -> None:
    """Windows of the busy split are over long before the quiet one says something."""
    a_while = [Pause(), Pause()]
    quiet = [*a_while * 50, 1_000]
    busy = [step for i in range(40) for step in (i, *a_while)]
    seen: list[int] = []
    flow = ms.Flow("quiet")
    timed = flow.read(ScriptedSource(busy, quiet)).event_time(
        lambda t: t, idle_after=idle_after
    )
    counts = windowed(timed.inspect(seen.append))
    quiet_came = counts.map(lambda _: 1_000 in seen).drop_key().collect()
    with manual_time():
        flow.run(workers=1, source_idle_ms=1_000, watermark_every_ms=0.001)

    assert (not all(quiet_came.result())) == is_early


def test_record_of_tomorrow_makes_nobody_late() -> None:
    """It waits for its own window, and is counted."""
    tomorrow = 10**15
    flow = ms.Flow("ahead")
    timed = flow.from_iterable([1, tomorrow, 2, 13, 14]).event_time(lambda t: t)
    counts = windowed(timed)
    late, results = counts.late().collect(), counts.collect()
    job = flow.start(
        on="local", workers=2, source_batch_rows=1, watermark_every_ms=0.001
    )
    job.wait()

    assert late.result() == []
    assert dict(results.result()) == {10: 2, 20: 2, tomorrow // 10 * 10 + 10: 1}
    assert sum(m.time.ahead_rows for m in job.metrics() if m.time) == 1


def test_merged_streams_are_as_late_as_the_later_one() -> None:
    """Rows of the slow one are not late because the quick one is ahead."""
    flow = ms.Flow("merged")
    quick = flow.from_iterable(range(100, 200)).event_time(lambda t: t)
    slow = flow.from_iterable(range(100)).event_time(lambda t: t)
    counts = windowed(quick.merge(slow))
    late, results = counts.late().collect(), counts.collect()
    flow.run(on="local", workers=2, watermark_every_ms=0.001, source_batch_rows=3)

    assert dict(results.result()) == dict.fromkeys(range(10, 201, 10), 10)
    assert late.result() == []


def test_merging_with_a_stream_without_time_drops_it() -> None:
    """A window then says what is missing."""
    flow = ms.Flow("mixed")
    timed = flow.from_iterable([1]).event_time(lambda t: t)
    merged = timed.merge(flow.from_iterable([2]))

    with pytest.raises(ms.UsageError, match=r"have no timestamps; call\s+\.event_time"):
        merged.window(ms.windows.tumbling(SIZE))


def test_time_begins_anew_with_every_round() -> None:
    """Windows of a round are complete at its end, and the next one begins at the start."""
    flow = ms.Flow("rounds")

    def body(rows: ms.Stream[int]) -> ms.Stream[int]:
        timed = rows.event_time(lambda i: i, out_of_order=100)
        return (
            timed.window(ms.windows.tumbling(1_000)).sum().map(lambda total: total + 1)
        )

    out = flow.from_iterable([1, 2, 3]).iterate(body, max_rounds=3).collect()
    flow.run(on="local", workers=2)

    assert out.result() == [9]


def test_what_leaves_a_free_loop_may_have_time() -> None:
    """Time is given inside the body; what comes round again has none."""
    flow = ms.Flow("free")

    def body(rows: ms.Stream[int]) -> tuple[ms.Stream[int], ms.Stream[int]]:
        timed = rows.event_time(lambda i: i, out_of_order=100)
        return timed.filter(lambda i: i < 8).map(lambda i: i * 2), timed.filter(
            lambda i: i >= 8
        )

    out = flow.from_iterable([1, 3]).loop(body)
    sums = out.window(ms.windows.tumbling(10)).sum().collect()
    flow.run(on="local", workers=2)

    assert sorted(sums.result()) == [8, 12]


@pytest.mark.parametrize("widths", mostly_slow((1, 3), (3, 1)))
def test_whole_right_sides_go_to_every_task_of_another_width(
    widths: tuple[int, int], tmp_path: Path
) -> None:
    """A task that is new has all rows of the right side too."""
    flow = ms.Flow("right sides")
    script = [s for i in range(300) for s in ({"id": i % 7}, Pause(), Pause())]
    rows = flow.read(ScriptedSource(script)).to_frame({"id": pl.Int64})
    names = flow.from_frame(pl.DataFrame({"id": range(7), "name": list("abcdefg")}))
    out = rows.join(names, on="id").collect()
    run_at_two_widths(flow, widths, tmp_path, idle_ms=25)

    assert Counter(out.result()["name"]) == Counter(
        "abcdefg"[i % 7] for i in range(300)
    )


FAR = [2**63 - 1, 2**63 - 2, 2**61 + 1, 2**63, 2**70, -(2**61) - 1, -(2**63), -(2**70)]
FAR_TIMED: dict[str, Callable[[ms.Flow, int], object]] = {
    "rows": lambda f, at: _timed(f, at).window(ms.windows.tumbling(10)).count(),
    "keyed": lambda f, at: (
        _timed(f, at).key_by(lambda _: 0).window(ms.windows.session(10)).count()
    ),
    "order": lambda f, at: _timed(f, at).in_time_order(),
    "frame": lambda f, at: (
        f.from_frame(pl.DataFrame({"at": [5, at]}))
        .event_time("at", max_future_skew=None)
        .window(ms.windows.tumbling(10))
        .agg(pl.len())
    ),
}


def _timed(flow: ms.Flow, at: int) -> Any:
    return flow.from_iterable([5, at]).event_time(lambda row: row, max_future_skew=None)


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        (kind, at)
        for kind in FAR_TIMED
        for at in FAR
        if kind != "frame" or -(2**63) <= at < 2**63
    ],
)
def test_timestamp_that_no_window_could_end_after_is_refused(
    kind: str, at: int
) -> None:
    """Its rows would be in no result, in nothing late, and in no error."""
    flow = ms.Flow("far")
    FAR_TIMED[kind](flow, at).collect()  # type: ignore[attr-defined]  # of any stream

    with pytest.raises(ms.OperatorError, match=f"{at} is no timestamp; expected"):
        flow.run(on="local")


@pytest.mark.parametrize("kind", FAR_TIMED)
@pytest.mark.parametrize("at", [2**61, -(2**61)], ids=str)
def test_farthest_timestamp_counts(kind: str, at: int) -> None:
    """The late one among them, before another, is found among the late."""
    flow = ms.Flow("far")
    made: Any = FAR_TIMED[kind](flow, at)
    result, late = made.collect(), made.late().collect()
    flow.run(on="local")

    assert len(result.result()) + len(late.result()) == 2


@pytest.mark.parametrize("at", [2**63 - 1, None])
def test_row_whose_timestamp_is_none_is_a_dead_letter(at: Any) -> None:
    """Of rows and frames, and though no other function of the stage may raise."""
    flow = ms.Flow("far")
    rows = _timed(flow, at).collect()
    table = flow.from_frame(pl.DataFrame({"at": [5, at, 6]})).event_time("at").collect()
    letters = flow.dead_letters(2).collect()
    flow.run(on="local")

    assert rows.result() == [5]
    assert table.result()["at"].to_list() == [5, 6]
    assert {str(letter.record) for letter in letters.result()} == {
        str(at),
        str({"at": at}),
    }


def test_duration_that_is_too_long_is_refused() -> None:
    """No timestamp has a place behind it."""
    with pytest.raises(ms.UsageError, match=r"expected at most 2\*\*60 ms"):
        ms.windows.tumbling(2**62)
