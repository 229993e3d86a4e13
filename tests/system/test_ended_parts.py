"""Jobs that go on with other workers or another plan: what has ended stays ended."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.examples import mostly_slow
from tests.support.pacing import (
    LENGTHS,
    Pace,
    Paced,
    Programs,
    has_ended,
    in_epoch,
)

import millstream as ms
from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def branches(
    flow: ms.Flow,
    pace: Pace,
    verb: str = "limit",
    change: str = "nothing",
    out: Path | None = None,
) -> None:
    """One source; a branch that has enough early, and one that reads on."""
    rows = flow.read(Paced(pace), name="rows")
    few = rows
    if change == "map in front" and verb != "cycle":
        few = rows.map(lambda i: i, name="same")
    match verb:
        case "limit":
            made: Any = few.limit(7, name="few")
        case "zip":
            made = few.zip(flow.from_iterable("abc", name="letters"), name="few")
        case "loop":
            made = few.loop(
                lambda q: (
                    q.filter(lambda i: i % 2, name="odd").map(
                        lambda i: i + 1, name="m"
                    ),
                    q.filter(lambda i: i % 2 == 0, name="even"),
                ),
                name="loop",
            ).limit(5, name="few")
        case "keyed":
            keyed = few.key_by(lambda i: i % 3, name="key").drop_key(name="values")
            made = keyed.limit(7, name="few")
        case "cycle":
            made = flow.from_iterable(range(10), name="points").cycle(
                100,
                lambda q, _: q.map(lambda _: 1, name="one"),
                update=lambda state, ones: state + sum(ones),
                max_rounds=3,
                name="few",
            )
        case _:
            frame = few.map(lambda i: {"n": i}, name="dicts").to_frame({"n": pl.Int64})
            made = frame.limit(7, name="few").to_rows(name="out")
    if change == "map behind":
        made = made.map(lambda row: row, name="same")
    made.collect(name="first")
    if out is not None:
        made.map(repr, name="repr").write_text(out, name="first texts")
    rest = rows.map(lambda i: i, name="all")
    if change == "map elsewhere":
        rest = rest.map(lambda i: i, name="same")
    if change == "aggregate behind":
        made.count(name="how many")
    rest.collect(name="rest")


ROWS = {"limit": 7, "zip": 3, "loop": 5, "keyed": 7, "cycle": 1, "frames": 7}


@pytest.mark.parametrize(
    "resumed",
    mostly_slow(
        (3, "nothing"),
        (2, "map in front"),
        (1, "nothing"),
        (2, "map behind"),
        (3, "map elsewhere"),
        (2, "aggregate behind"),
        (2, "map elsewhere"),
        (2, "nothing"),
        (4, "nothing"),
        fast=2,
    ),
    ids=lambda resumed: f"{resumed[0]} workers, {resumed[1]}",
)
@pytest.mark.parametrize("verb", ROWS)
def test_branch_that_has_ended_gives_nothing_more(
    tmp_path: Path, verb: str, resumed: tuple[int, str]
) -> None:
    """It began anew at another width or in another plan: a limit of 7 gave 14 rows."""
    programs = Programs(partial(branches, verb=verb), tmp_path)
    programs.leave_at(2, has_ended("few"))

    workers, change = resumed
    found = programs.finish(workers, change=change)

    assert len(found["first"]) == ROWS[verb]
    if verb == "cycle":
        assert found["first"] == [100 + 3 * 10], (
            "a one for each of ten, in three rounds"
        )
    assert sorted(found["rest"]) == list(range(sum(LENGTHS)))


def _limited_rounds(rows: Any) -> Any:
    """Make numbers even in a loop, each another one, and take some of them."""
    even = rows.loop(
        lambda q: (
            q.filter(lambda i: i % 2, name="odd").map(lambda i: -i - 1, name="less"),
            q.filter(lambda i: i % 2 == 0, name="even"),
        ),
        name="loop",
    )
    return even.limit(9, name="few")


def _sums_by_time(flow: ms.Flow) -> Any:
    rows = flow.from_iterable(range(10), name="own").event_time(lambda i: i, name="at")
    return rows.window(ms.windows.tumbling(4)).sum(name="few")


OWN: dict[str, tuple[Callable[[ms.Flow], Any], int | list[Any]]] = {
    "limit": (
        lambda f: f.from_iterable(range(1000), name="own").limit(7, name="few"),
        7,
    ),
    "limit of many tasks": (
        lambda f: (
            f.from_parallel(lambda task, tasks: range(task, 1000, tasks), name="own")
            .map(lambda i: i, name="same")
            .limit(7, name="few")
        ),
        7,
    ),
    "limit of endless tasks": (
        lambda f: f.from_parallel(count, name="own").limit(7, name="few"),
        7,
    ),
    "zip": (
        lambda f: f.from_iterable(range(1000), name="own").zip(
            f.from_iterable("abc", name="letters"), name="few"
        ),
        3,
    ),
    "frame": (
        lambda f: (
            f.from_frame(pl.DataFrame({"n": range(1000)}), name="own")
            .limit(7, name="few")
            .to_rows(name="dicts")
            .map(lambda row: row["n"], name="n")
        ),
        7,
    ),
    "loop": (
        lambda f: _limited_rounds(f.from_parallel(count, name="own")),
        9,
    ),
    "sorted": (
        lambda f: (
            f.from_iterable(range(50), name="own")
            .sort_by(lambda i: -i, name="order")
            .limit(5, name="few")
        ),
        [45, 46, 47, 48, 49],
    ),
    "iterate": (
        lambda f: f.from_iterable(range(10), name="own").iterate(
            lambda q: q.map(lambda i: i + 100, name="more"), max_rounds=2, name="few"
        ),
        list(range(200, 210)),
    ),
    "groups": (
        lambda f: (
            f.from_iterable(range(10), name="own")
            .group_by(lambda i: i % 2, name="by")
            .sum(name="few")
        ),
        [(0, 20), (1, 25)],
    ),
    "windows": (_sums_by_time, [6, 17, 22]),
    "csv": (
        lambda f: f.from_frame(pl.DataFrame({"n": range(5)}), name="own"),
        list(range(5)),
    ),
}
"""Parts of a flow, and their rows, or how many different ones if any will do."""


def beside_its_own(flow: ms.Flow, pace: Pace, kind: str, out: Path) -> None:
    """Build a part that ends early, and one that shares nothing with it."""
    made = OWN[kind][0](flow)
    if kind == "csv":
        made.write_csv(out, name="few")
    else:
        made.collect(name="first")
    flow.read(Paced(pace), name="rows").collect(name="rest")


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 4))
@pytest.mark.parametrize("kind", mostly_slow(*OWN))
def test_part_with_its_own_source_that_has_ended_stays_ended(
    tmp_path: Path, kind: str, workers: int
) -> None:
    """Its source is not read again, and what it gave is neither lost nor given twice."""
    out, expected = tmp_path / "out", OWN[kind][1]
    programs = Programs(partial(beside_its_own, kind=kind, out=out), tmp_path)
    programs.leave_at(2, has_ended("few"))

    found = programs.finish(workers)

    if kind == "csv":
        first = [int(n) for p in out.glob("part-*") for n in p.read_text().split()[1:]]
    else:
        first = found["first"]
    if isinstance(expected, int):
        assert (len(first), len(set(first))) == (expected, expected)
    else:
        assert sorted(first) == expected
    assert sorted(found["rest"]) == list(range(sum(LENGTHS)))


def test_source_that_was_left_goes_on_for_a_new_branch(tmp_path: Path) -> None:
    """It had not ended: nobody read from it, and now somebody does."""

    def build(flow: ms.Flow, pace: Pace, *, is_read: bool = False) -> None:
        rows = flow.read(Paced(Pace(is_over=True), (6000,)), name="left")
        rows.limit(7, name="few").collect(name="first")
        if is_read:
            rows.collect(name="rest")
        flow.read(Paced(pace), name="rows").collect(name="others")

    programs = Programs(build, tmp_path)
    programs.leave_at(2, in_epoch(6))

    found = programs.finish(3, is_read=True)

    assert len(found["first"]) == 7
    assert found["rest"], "it reads what comes after the branch was added"
    assert max(Counter(found["rest"]).values()) == 1
    assert sorted(found["others"]) == list(range(sum(LENGTHS)))


def test_what_cannot_go_on_is_refused(tmp_path: Path) -> None:
    """State that is gone, and rows that nobody would take."""

    def build(flow: ms.Flow, pace: Pace, change: str = "nothing") -> None:
        rows = flow.read(Paced(Pace(is_over=True), (6000,)), name="left")
        if change == "source":
            rows = rows.merge(flow.from_iterable([1], name="new"), name="both")
        sums = rows.key_by(lambda i: i % 3, name="key").scan(
            lambda total, i: total + i, name="sums"
        )
        sums.unkey(name="pairs").limit(7, name="few").collect(name="first")
        if change == "reader":
            sums.unkey(name="more").collect(name="rest")
        flow.read(Paced(pace), name="rows").collect(name="others")

    programs = Programs(build, tmp_path)
    programs.leave_at(2, has_ended("sums", was_left=True))

    with pytest.raises(
        SnapshotError, match="'sums' is read again, and its state is go"
    ):
        programs.finish(2, change="reader")
    for drops in (False, True):
        with pytest.raises(
            SnapshotError, match=r"source 'new' is new, and the operator '.*"
        ):
            programs.finish(3, drops=drops, change="source")
    assert len(programs.finish(1)["first"]) == 7


def test_other_input_of_a_complete_job_is_not_taken_for_read(tmp_path: Path) -> None:
    """Whoever follows what the refusal advises must not get the result of the first run."""

    def run(rows: range, source: str, *, drops: bool = True) -> Any:
        flow = ms.Flow("daily")
        keyed = flow.from_iterable(rows, name=source).group_by(lambda i: i % 2)
        keyed.sum(name="sums").collect(name="found")
        job = flow.run(on="local", state=tmp_path / "state", drop_state=drops)
        return sorted(job.result()["found"])

    run(range(4), "monday", drops=False)

    with pytest.raises(SnapshotError, match="give the source another name= and pass"):
        run(range(6), "monday", drops=False)
    with pytest.raises(SnapshotError, match="'tuesday' is new, and the operator '"):
        run(range(6), "tuesday")
    assert run(range(4), "monday", drops=False) == [(0, 2), (1, 4)]


def contents(directory: Path) -> dict[str, bytes]:
    """Return what is in every file of a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "verb", mostly_slow("limit", "cycle", "zip", "loop", "keyed", "frames", fast=2)
)
def test_complete_job_that_is_started_again_runs_nothing(
    tmp_path: Path, verb: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the number of workers: no task, no new snapshot, the same files; it says so."""

    def build(flow: ms.Flow, pace: Pace) -> None:
        branches(flow, pace, verb, out=tmp_path / "few")
        flow.read(Paced(pace), name="written").map(ran.append, name="ran").map(
            str, name="text"
        ).write_text(tmp_path / "out", name="texts")

    ran: list[int] = []
    programs = Programs(build, tmp_path)
    first = programs.finish(2)
    files = contents(tmp_path / "out"), contents(tmp_path / "few")
    manifests = sorted((tmp_path / "state" / "manifests").iterdir())
    ran.clear()

    with caplog.at_level("INFO", "millstream"):
        job = programs.flow().run(state=tmp_path / "state", workers=workers, on="local")

    assert (job.status(), job.was_complete, job.result()) == ("complete", True, first)
    assert "was complete in epoch" in " ".join(job.story())
    assert (contents(tmp_path / "out"), contents(tmp_path / "few")) == files
    assert sorted((tmp_path / "state" / "manifests").iterdir()) == manifests
    assert ran == []


def beside_what_goes(flow: ms.Flow, pace: Pace, goes: str = "") -> None:
    """Build a branch that ends early, and beside it one that has not come to its end."""
    rows = flow.read(Paced(pace, (2, 3)), name="few")
    rows.group_by(lambda i: i % 2, name="by").count(name="kept").collect(name="counts")
    if not goes:
        return
    others = flow.read(Paced(pace), name="many")
    if goes == "state":
        keyed = others.group_by(lambda i: i % 3, name="keys")
        keyed.count(name="gone").collect(name="gone counts")
    else:
        others.map(str, name="text").write_text(f"{goes}/out", name="gone texts")


@pytest.mark.parametrize("goes", ["state", "output"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_was_dropped_by_a_complete_job_is_gone(
    tmp_path: Path, goes: str, workers: int
) -> None:
    """That nothing is left to do is stored, so that nobody has to say it again."""
    place = goes if goes == "state" else str(tmp_path)
    programs = Programs(partial(beside_what_goes, goes=place), tmp_path)
    programs.leave_at(2, has_ended("counts"))
    state = tmp_path / "state"

    def started(*, drops: bool = False, workers: int = workers) -> ms.Job:
        flow = ms.Flow("resumed")
        beside_what_goes(flow, programs.pace)
        return flow.run(on="local", state=state, workers=workers, drop_state=drops)

    with pytest.raises(SnapshotError, match="gone"):
        started()
    dropping = started(drops=True)
    jobs = [dropping, started(drops=True), started(), started(workers=2)]

    assert [job.status() for job in jobs] == ["complete"] * 4
    assert {job.epoch for job in jobs[:3]} == {dropping.epoch}, "it was stored once"
    counts = [sorted(job.result()["counts"]) for job in jobs]
    assert counts == [[(0, 3), (1, 2)]] * 4
    assert not [name for name in _stored_operators(dropping) if "gone" in name]


def _stored_operators(job: ms.Job) -> set[str]:
    """Return the operators that the last snapshot says something of."""
    manifest = job._run.coordinator.snapshots.manifests.manifest
    assert manifest is not None
    listed = {name for ref in manifest.files for name in ref.operators}
    return listed | {*manifest.operators, *manifest.offsets, *manifest.fingerprints}
